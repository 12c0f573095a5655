//! Reading a file of any text format, block by block.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use osmill_model::{BoundingBox, Timestamp};
use osmill_pbf::{Block, BlockError, Element, FileHeader, HeaderBox};

use crate::assemble::{Action, Assembler, TextBlock, refill};
use crate::error::{Bad, Error, Place, Problem, Warning};
use crate::format::{Sniffed, Syntax, TextCompression};
use crate::o5m::O5mParser;
use crate::opl::OplParser;
use crate::pieces::{Ahead, Fork, Next};
use crate::source::{CHUNK, Source};
use crate::xml::XmlParser;

/// Bytes from which on an element is refused. Blocks are finished at 12 MiB, and an element of this size more leaves
/// them under the 32 MiB that readers of PBF take. Checked to a chunk.
const MAX_ELEMENT: usize = 16 << 20;

/// Distinct warnings that are kept; a file of nothing but unknown names must not fill the memory.
pub(crate) const MAX_WARNINGS: usize = 100;

/// What a file says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    /// Whether the file holds changes (OsmChange, o5c).
    pub is_change: bool,
    /// The version of the format, `0.6`.
    pub version: Option<String>,
    /// The program that wrote the file.
    pub generator: Option<String>,
    /// Up to when changes are in the data.
    pub timestamp: Option<Timestamp>,
    /// JOSM's mark whether data may be uploaded.
    pub upload: Option<String>,
    /// The areas that the data covers.
    pub bounds: Vec<BoundingBox>,
}

impl Header {
    /// The header of a PBF file that says the same.
    pub fn to_file_header(&self) -> FileHeader {
        let nano = |value: i32| i64::from(value) * 100;
        let area = |bounds: &BoundingBox| HeaderBox {
            left: nano(bounds.min.lon),
            right: nano(bounds.max.lon),
            top: nano(bounds.max.lat),
            bottom: nano(bounds.min.lat),
        };
        let mut header = FileHeader::new("");
        header.writing_program = self.generator.clone();
        header.replication_timestamp = self.timestamp;
        header.upload = self.upload.clone();
        header.set_areas(self.bounds.iter().map(area).collect());
        header.set_history(self.is_change);
        header
    }
}

/// A parser of one format.
///
/// It is given the unread bytes of a file, reads elements into `out` until a block is ready or the bytes end
/// inside an element, and gives how many bytes it is done with. With the last bytes it also finishes the last
/// block; what is cut off is an error then.
pub(crate) trait Parse: std::fmt::Debug {
    fn parse(&mut self, data: &[u8], last: bool, out: &mut Assembler) -> Result<usize, Box<Bad>>;
    fn header(&self) -> &Header;
    fn warnings(&mut self) -> &mut Vec<(usize, String)>;
}

#[derive(Debug)]
enum AnyParser {
    Xml(Box<XmlParser>),
    Opl(Box<OplParser>),
    O5m(Box<O5mParser>),
}

impl Parse for AnyParser {
    fn parse(&mut self, data: &[u8], last: bool, out: &mut Assembler) -> Result<usize, Box<Bad>> {
        match self {
            AnyParser::Xml(parser) => parser.parse(data, last, out),
            AnyParser::Opl(parser) => parser.parse(data, last, out),
            AnyParser::O5m(parser) => parser.parse(data, last, out),
        }
    }

    fn header(&self) -> &Header {
        match self {
            AnyParser::Xml(parser) => parser.header(),
            AnyParser::Opl(parser) => parser.header(),
            AnyParser::O5m(parser) => parser.header(),
        }
    }

    fn warnings(&mut self) -> &mut Vec<(usize, String)> {
        match self {
            AnyParser::Xml(parser) => parser.warnings(),
            AnyParser::Opl(parser) => parser.warnings(),
            AnyParser::O5m(parser) => parser.warnings(),
        }
    }
}

/// o5m cannot be cut: its strings and numbers depend on all that came before.
impl Fork for AnyParser {
    fn cut(&self, data: &[u8], from: usize) -> Option<usize> {
        match self {
            AnyParser::Xml(parser) => parser.cut(data, from),
            AnyParser::Opl(parser) => parser.cut(data, from),
            AnyParser::O5m(_) => None,
        }
    }

    fn fork(&self) -> Self {
        match self {
            AnyParser::Xml(parser) => AnyParser::Xml(Box::new(parser.fork())),
            AnyParser::Opl(parser) => AnyParser::Opl(Box::new(parser.fork())),
            AnyParser::O5m(_) => AnyParser::O5m(Box::default()),
        }
    }

    fn fork_behind(&self, data: &[u8]) -> Self {
        match self {
            AnyParser::Xml(parser) => AnyParser::Xml(Box::new(parser.fork_behind(data))),
            _ => self.fork(),
        }
    }

    fn agrees(&self, other: &Self) -> bool {
        match (self, other) {
            (AnyParser::Xml(parser), AnyParser::Xml(other)) => parser.agrees(other),
            (AnyParser::Opl(parser), AnyParser::Opl(other)) => parser.agrees(other),
            _ => false,
        }
    }

    fn join(&mut self, piece: Self) {
        match (self, piece) {
            (AnyParser::Xml(parser), AnyParser::Xml(piece)) => parser.join(*piece),
            (AnyParser::Opl(parser), AnyParser::Opl(piece)) => parser.join(*piece),
            _ => {}
        }
    }
}

/// Lines and columns of what has been read.
#[derive(Debug, Default)]
struct Position {
    bytes: u64,
    newlines: u64,
    /// Characters since the last line feed.
    column: u64,
}

impl Position {
    fn advance(&mut self, data: &[u8]) {
        let characters = |bytes: &[u8]| bytes.iter().filter(|b| **b & 0xc0 != 0x80).count() as u64;
        self.bytes += data.len() as u64;
        match memchr::memrchr(b'\n', data) {
            Some(last) => {
                self.newlines += memchr::memchr_iter(b'\n', data).count() as u64;
                self.column = characters(&data[last + 1..]);
            }
            None => self.column += characters(data),
        }
    }

    fn line_at(&self, data: &[u8], offset: usize) -> u64 {
        self.newlines + 1 + memchr::memchr_iter(b'\n', &data[..offset]).count() as u64
    }
}

/// Reads OSM XML, OsmChange, OPL, o5m and o5c, plain or compressed, all recognised by content.
///
/// Decompression runs on a thread of its own, a few MiB ahead of the parser. Memory is bounded by these,
/// the window of the parser (2 MiB, more where a single element is larger), the block that is being built, and, with
/// several threads, a few pieces of text of 3 MiB with the blocks made of them.
///
/// ```
/// use osmill_pbf::Block;
/// use osmill_text::{Action, Reader};
///
/// let file = br#"<osmChange version="0.6"><delete><node id="17" version="2"/></delete></osmChange>"#;
/// let mut reader = Reader::open(&file[..])?;
/// assert!(reader.header().is_change);
/// let mut block = Block::empty();
/// while let Some(part) = reader.read(&mut block)? {
///     assert_eq!(part.action, Some(Action::Delete));
///     for element in block.elements() {
///         assert_eq!(element?.id(), 17);
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    source: Source,
    parser: AnyParser,
    assembler: Assembler,
    window: Vec<u8>,
    at: usize,
    last: bool,
    position: Position,
    warnings: Vec<Warning>,
    bytes: Vec<u8>,
    /// Text that is parsed by other threads, if there are any.
    ahead: Option<Ahead<AnyParser>>,
    /// Blocks that these have made.
    ready: VecDeque<(TextBlock, Vec<u8>)>,
}

impl Reader {
    /// Opens a file.
    pub fn from_path(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|source| Error::Open {
            path: path.to_owned(),
            source,
        })?;
        Reader::open(file)
    }

    /// Begins to read on one thread, besides that of decompression; see [`open_with`](Self::open_with).
    pub fn open(input: impl Read + Send + 'static) -> Result<Self, Error> {
        Reader::open_with(input, 1)
    }

    /// Begins to read, parsing on up to `threads` threads. Each takes about 12 MiB. Blocks are the same in
    /// contents and order for any number of threads, but smaller at the ends of pieces.
    ///
    /// What comes before the first element, and as much as makes up the first block, is read at once; errors in
    /// it are told here.
    pub fn open_with(input: impl Read + Send + 'static, threads: usize) -> Result<Self, Error> {
        Reader::open_as(input, threads, None)
    }

    /// As [`open_with`](Self::open_with) for a file that is said to have this syntax. That counts only where the
    /// content tells nothing: OPL of no elements is empty or blank.
    pub fn open_as(
        input: impl Read + Send + 'static,
        threads: usize,
        said: Option<Syntax>,
    ) -> Result<Self, Error> {
        let threads = threads.clamp(1, 64);
        let mut source = Source::new(input, if threads > 1 { 4 * threads } else { 4 })?;
        let mut window = Vec::with_capacity(2 * CHUNK);
        let mut last = false;
        // Comments before the root may be long, but a file that does not look like OSM data after a chunk is
        // none.
        while window.len() < CHUNK / 4 && !last {
            last = !append(&mut source, &mut window)?;
        }
        let parser = match Sniffed::of(&window) {
            Sniffed::OsmXml | Sniffed::Xml => AnyParser::Xml(Box::default()),
            Sniffed::Opl => AnyParser::Opl(Box::default()),
            Sniffed::O5m => AnyParser::O5m(Box::default()),
            _ if said == Some(Syntax::Opl) && window.iter().all(|b| b.is_ascii_whitespace()) => {
                AnyParser::Opl(Box::default())
            }
            other => return Err(Error::Format(other)),
        };
        let ahead = (threads > 1).then(|| Ahead::new(&parser, threads));
        let mut reader = Reader {
            source,
            parser,
            assembler: Assembler::default(),
            window,
            at: 0,
            last,
            position: Position::default(),
            warnings: Vec::new(),
            bytes: Vec::new(),
            ahead,
            ready: VecDeque::new(),
        };
        reader.prepare()?;
        Ok(reader)
    }

    /// What the file says about itself. Complete from the beginning, unless bounds stand behind elements.
    pub fn header(&self) -> &Header {
        self.parser.header()
    }

    /// The format, as the content tells.
    pub fn syntax(&self) -> Syntax {
        match &self.parser {
            AnyParser::Xml(_) => Syntax::Xml,
            AnyParser::Opl(_) => Syntax::Opl,
            AnyParser::O5m(_) => Syntax::O5m,
        }
    }

    /// The compression around it.
    pub fn compression(&self) -> TextCompression {
        self.source.compression()
    }

    /// What has been passed over so far, each kind of thing once.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Bytes read so far, after decompression.
    pub fn bytes_read(&self) -> u64 {
        self.position.bytes
    }

    /// Replaces `out` by the bytes of the next block and tells what is in it; `None` at the end. Blocks hold
    /// elements of one kind and action, in the order of the file, [`osmill_pbf::ELEMENTS_PER_BLOCK`] at most.
    ///
    /// After an error the reader is at its end.
    pub fn next_block(&mut self, out: &mut Vec<u8>) -> Result<Option<TextBlock>, Error> {
        self.prepare()?;
        if let Some((block, bytes)) = self.ready.pop_front() {
            *out = bytes;
            return Ok(Some(block));
        }
        Ok(self.assembler.take(out))
    }

    /// Reads the next block; see [`next_block`](Self::next_block).
    pub fn read(&mut self, block: &mut Block) -> Result<Option<TextBlock>, Error> {
        let mut bytes = std::mem::take(&mut self.bytes);
        let next = self.next_block(&mut bytes);
        if let Ok(Some(_)) = &next {
            // The builder's bytes are well formed.
            refill(block, &mut bytes).map_err(|error| Error::Read(std::io::Error::other(error)))?;
        }
        self.bytes = bytes;
        next
    }

    /// Calls `visit` with every element that is left, in the order of the file, and what the file says about
    /// it: for a change file the changes one by one, ready to be applied.
    pub fn for_each<E>(
        mut self,
        mut visit: impl FnMut(Option<Action>, &Element<'_>) -> Result<(), E>,
    ) -> Result<(), E>
    where
        E: From<Error> + From<BlockError>,
    {
        let mut block = Block::empty();
        while let Some(part) = self.read(&mut block)? {
            for element in block.elements() {
                visit(part.action, &element?)?;
            }
        }
        Ok(())
    }

    /// Parses until a block is ready or the file ends.
    fn prepare(&mut self) -> Result<(), Error> {
        let result = self.fill();
        if result.is_err() {
            self.window.clear();
            (self.at, self.last) = (0, true);
            self.ahead = None;
            self.parser = AnyParser::Opl(Box::default());
        }
        result
    }

    fn is_ready(&self) -> bool {
        self.assembler.is_ready() || !self.ready.is_empty()
    }

    fn fill(&mut self) -> Result<(), Error> {
        self.look_ahead();
        while !self.is_ready() {
            if self.take_ahead()? {
                continue;
            }
            let data = &self.window[self.at..];
            let parsed = self.parser.parse(data, self.last, &mut self.assembler);
            let warnings = std::mem::take(self.parser.warnings());
            self.settle(parsed, warnings)?;
            if self.is_ready() || (self.last && self.at == self.window.len()) {
                break;
            }
            self.read_on()?;
        }
        Ok(())
    }

    /// Leaves the text that was not parsed to other threads, if there are any and elements follow. What comes back
    /// from them unparsed is parsed here, up to the next block at least, before it may go to them again.
    fn look_ahead(&mut self) {
        let Some(ahead) = self.ahead.as_mut().filter(|ahead| ahead.is_empty()) else {
            return;
        };
        let rest = &self.window[self.at..];
        if !self.last && self.ready.is_empty() && self.parser.cut(rest, 0).is_some() {
            ahead.resume(&self.parser, rest.to_vec());
            self.window.clear();
            self.at = 0;
        }
    }

    /// Takes what other threads have made of the text that comes next, where all that came before is done with.
    /// Gives whether something changed.
    fn take_ahead(&mut self) -> Result<bool, Error> {
        let Some(ahead) = &mut self.ahead else {
            return Ok(false);
        };
        if self.at < self.window.len() || ahead.is_empty() {
            return Ok(false);
        }
        // What was read before comes first.
        self.assembler.flush();
        if self.assembler.is_ready() {
            return Ok(true);
        }
        self.at = 0;
        match ahead.next(&mut self.source)? {
            Next::Text(text, last) => (self.window, self.last) = (text, last),
            Next::Piece(entry, mut piece) => {
                ahead.recycle(std::mem::replace(&mut self.window, piece.text));
                if !piece.failed && self.parser.agrees(&entry) {
                    self.ready.extend(piece.blocks);
                    let warnings = std::mem::take(piece.parser.warnings());
                    self.parser.join(piece.parser);
                    self.settle(Ok(piece.done), warnings)?;
                }
            }
        }
        Ok(true)
    }

    /// Takes note of how far a parser came.
    fn settle(
        &mut self,
        parsed: Result<usize, Box<Bad>>,
        warnings: Vec<(usize, String)>,
    ) -> Result<(), Error> {
        let data = &self.window[self.at..];
        for (offset, text) in warnings {
            // Threads do not know what others have told.
            let is_known = self.warnings.iter().any(|warning| warning.text == text);
            if !is_known && self.warnings.len() < MAX_WARNINGS {
                let line = self.position.line_at(data, offset.min(data.len()));
                self.warnings.push(Warning { line, text });
            }
        }
        match parsed {
            Ok(done) => {
                self.position.advance(&data[..done]);
                self.at += done;
                Ok(())
            }
            Err(bad) => {
                self.position.advance(&data[..bad.offset.min(data.len())]);
                Err(self.error(*bad))
            }
        }
    }

    /// Brings more bytes into the window.
    fn read_on(&mut self) -> Result<(), Error> {
        let left = self.window.len() - self.at;
        if left > MAX_ELEMENT {
            let problem = Problem::TooLong(MAX_ELEMENT);
            return Err(self.error(Bad {
                offset: 0,
                element: None,
                problem,
            }));
        }
        self.window.drain(..self.at);
        self.at = 0;
        // An element that is cut off is parsed again from its beginning: doubling keeps that linear.
        let wanted = (2 * left).clamp(CHUNK / 2, MAX_ELEMENT + CHUNK);
        while self.window.len() < wanted && !self.last {
            let text = self.ahead.as_mut().map(Ahead::next_text).transpose()?;
            match text.filter(|text| !text.is_empty()) {
                Some(text) => self.window.extend_from_slice(&text),
                None => self.last = !append(&mut self.source, &mut self.window)?,
            }
        }
        Ok(())
    }

    #[cold]
    fn error(&self, bad: Bad) -> Error {
        let place = match self.parser {
            AnyParser::O5m(_) => Place::Byte(self.position.bytes),
            _ => Place::Line {
                line: self.position.newlines + 1,
                column: self.position.column + 1,
            },
        };
        Error::At {
            place,
            element: bad.element,
            problem: bad.problem,
        }
    }
}

/// Appends the next chunk; gives whether there was one.
fn append(source: &mut Source, window: &mut Vec<u8>) -> Result<bool, Error> {
    let Some(chunk) = source.next()? else {
        return Ok(false);
    };
    if window.is_empty() {
        let empty = std::mem::replace(window, chunk);
        source.recycle(empty);
    } else {
        window.extend_from_slice(&chunk);
        source.recycle(chunk);
    }
    Ok(true)
}
