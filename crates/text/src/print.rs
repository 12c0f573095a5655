//! What all writers of text share.

use osmill_model::{BoundingBox, Location, Metadata};
use osmill_pbf::{Block, BlockError, Element, FileHeader, HeaderBox, MetadataFields, Node};

use crate::assemble::Action;
use crate::format::{FormatSpec, Syntax};
use crate::reader::Header;
use crate::{opl, xml};

/// How elements are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrintOptions {
    /// Which metadata is printed.
    pub metadata: MetadataFields,
    /// XML only: print OsmChange.
    pub change: bool,
    /// XML only: print a `visible` attribute.
    pub visible: bool,
    /// Print the locations that ways carry: never, or always, be it as absent (which shows in OPL), or where they
    /// have some.
    pub locations_on_ways: Option<bool>,
    /// Print the locations of deleted nodes where blocks have them: right for blocks read from text, where
    /// somebody wrote them on purpose, and wrong for those of PBF files, where some writers put 0/0.
    pub deleted_locations: bool,
}

/// What stands before the first element of an XML file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PrintHeader {
    /// The program that writes the file.
    pub generator: String,
    /// The areas that the data covers.
    pub bounds: Vec<BoundingBox>,
    /// JOSM's mark that data must not be uploaded (`false`, `never`) or may be.
    pub upload: Option<String>,
}

impl PrintHeader {
    /// The header of a file made from a PBF file with this header. Edges are cut to 10⁻⁷ degrees.
    pub fn from_pbf(header: &FileHeader, generator: &str) -> Self {
        let unit =
            |nanodegrees: i64| (nanodegrees / 100).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
        let corners =
            |b: &HeaderBox| BoundingBox::new(unit(b.left), unit(b.bottom), unit(b.right), unit(b.top));
        PrintHeader {
            generator: generator.into(),
            bounds: header.areas().iter().map(corners).collect(),
            upload: header.upload.clone(),
        }
    }

    /// The header of a file made from another text file.
    pub fn from_text(header: &Header, generator: &str) -> Self {
        PrintHeader {
            generator: generator.into(),
            bounds: header.bounds.clone(),
            upload: header.upload.clone(),
        }
    }
}

/// Prints elements in OSM XML, OsmChange or OPL.
///
/// Text is made block by block: the pieces of any number of printers, in the order of the blocks, between
/// [`header`](Self::header) and [`end`](Self::end) make a file.
#[derive(Debug, Clone)]
pub struct Printer {
    is_xml: bool,
    options: PrintOptions,
    open: Option<Action>,
}

impl Printer {
    /// A printer of XML (`true`) or OPL.
    fn with(is_xml: bool, options: PrintOptions) -> Self {
        Printer {
            is_xml,
            options,
            open: None,
        }
    }

    /// A printer of OSM XML, or of OsmChange where the options say so.
    pub fn xml(options: PrintOptions) -> Self {
        Printer::with(true, options)
    }

    /// A printer of OPL.
    pub fn opl(options: PrintOptions) -> Self {
        Printer::with(false, options)
    }

    /// A printer of a format with its options; `None` where the format is not text, or not written.
    pub fn of(spec: &FormatSpec) -> Option<Self> {
        match spec.syntax? {
            Syntax::Xml => Some(Printer::xml(spec.print_options())),
            Syntax::Opl => Some(Printer::opl(spec.print_options())),
            Syntax::Pbf | Syntax::O5m => None,
        }
    }

    /// The options.
    pub fn options(&self) -> &PrintOptions {
        &self.options
    }

    /// The options, to be changed before anything is printed.
    pub fn options_mut(&mut self) -> &mut PrintOptions {
        &mut self.options
    }

    /// Whether OsmChange is printed.
    pub fn is_change(&self) -> bool {
        self.is_xml && self.options.change
    }

    /// Appends what stands before the first element.
    pub fn header(&self, header: &PrintHeader, out: &mut Vec<u8>) {
        if self.is_xml {
            xml::write_header(header, &self.options, out);
        }
    }

    /// Appends what stands behind the last element, the end of an open action included.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        self.end_block(out);
        if self.is_xml {
            xml::write_end(&self.options, out);
        }
    }

    /// Appends an element with this metadata, its own or what is left of it.
    ///
    /// In OsmChange it stands under `action` or, without one, under `<delete>` if it is deleted, `<create>` if
    /// its version is 1, and `<modify>` otherwise. The tag of the action stays open for the next element.
    pub fn element(
        &mut self,
        element: &Element<'_>,
        metadata: &Metadata<'_>,
        action: Option<Action>,
        out: &mut Vec<u8>,
    ) -> Result<(), BlockError> {
        if !self.is_xml {
            return opl::print_element(element, metadata, &self.options, out);
        }
        if self.options.change {
            let action = action.unwrap_or(match (metadata.is_visible(), metadata.version) {
                (false, _) => Action::Delete,
                (true, Some(1)) => Action::Create,
                (true, _) => Action::Modify,
            });
            if self.open != Some(action) {
                xml::close_action(self.open.take(), out);
                xml::open_action(action, out);
                self.open = Some(action);
            }
        }
        xml::print_element(element, metadata, &self.options, out)
    }

    /// Appends what has to stand behind the elements of a block: the end of an open action.
    pub fn end_block(&mut self, out: &mut Vec<u8>) {
        xml::close_action(self.open.take(), out);
    }

    /// Appends all elements of a block, closed on both sides. Gives the number of nodes, ways and relations.
    ///
    /// In OsmChange an action ends with the block even if the next one begins with the same; an [`ActionJoiner`] makes
    /// one of both.
    pub fn block(
        &mut self,
        block: &Block,
        action: Option<Action>,
        out: &mut Vec<u8>,
    ) -> Result<[u32; 3], BlockError> {
        let counts = self.elements(block, action, out)?;
        self.end_block(out);
        Ok(counts)
    }

    /// Appends all elements of a block and leaves the last action open for the next block, which the same
    /// printer has to print.
    pub fn elements(
        &mut self,
        block: &Block,
        action: Option<Action>,
        out: &mut Vec<u8>,
    ) -> Result<[u32; 3], BlockError> {
        let mut counts = [0; 3];
        for element in block.elements() {
            let element = element?;
            self.element(&element, &element.metadata()?, action, out)?;
            counts[element.kind() as usize] += 1;
        }
        Ok(counts)
    }
}

/// Joins pieces of OsmChange that printers have made: where one ends with the action with which the next begins, the
/// action stays open.
///
/// ```
/// let mut joiner = osmill_text::ActionJoiner::default();
/// let mut out = Vec::new();
/// for piece in ["  <create>\nA\n  </create>\n", "  <create>\nB\n  </create>\n", "</osmChange>\n"] {
///     let mut piece = piece.as_bytes().to_vec();
///     joiner.join(&mut piece);
///     out.extend_from_slice(&piece);
/// }
/// assert_eq!(out, b"  <create>\nA\nB\n  </create>\n</osmChange>\n");
/// ```
#[derive(Debug, Default)]
pub struct ActionJoiner {
    open: Option<Action>,
}

impl ActionJoiner {
    /// Changes a piece to what stands in the file behind the pieces before it. The end of its last action comes with
    /// the next piece, so the last piece has to be one that does not end with an action, as the end of a file.
    pub fn join(&mut self, text: &mut Vec<u8>) {
        if text.is_empty() {
            return;
        }
        let mut tag = Vec::new();
        if let Some(open) = self.open.take() {
            xml::open_action(open, &mut tag);
            if text.starts_with(&tag) {
                text.drain(..tag.len());
            } else {
                tag.clear();
                xml::close_action(Some(open), &mut tag);
                text.splice(..0, tag.iter().copied());
            }
        }
        for action in Action::ALL {
            tag.clear();
            xml::close_action(Some(action), &mut tag);
            if text.ends_with(&tag) {
                text.truncate(text.len() - tag.len());
                self.open = Some(action);
                break;
            }
        }
    }

    /// The end of the action that is open, for a piece that cannot be changed.
    pub fn close(&mut self) -> Vec<u8> {
        let mut tag = Vec::new();
        xml::close_action(self.open.take(), &mut tag);
        tag
    }
}

/// The location of a node that is to be printed.
pub(crate) fn stored_location(
    node: &Node<'_>,
    options: &PrintOptions,
) -> Result<Option<Location>, BlockError> {
    if options.deleted_locations {
        node.stored_location()
    } else {
        node.location()
    }
}
