//! The targets of text formats.

use osmill_pbf::Block;
use osmill_text::format::{FormatSpec, Sniffed};
use osmill_text::{PrintHeader, PrintOptions, Printer, Reader};

/// Blocks that are read of an input: compressed data may hold any number.
const MOST_BLOCKS: usize = 50;

/// A text file of any format, compressed or not. What can be read of it can be printed, and what is printed reads
/// back as what prints the same.
pub fn text(data: &[u8]) {
    let options = PrintOptions {
        visible: true,
        deleted_locations: true,
        ..PrintOptions::default()
    };
    let change = PrintOptions {
        change: true,
        visible: false,
        ..options
    };
    for printer in [Printer::xml(options), Printer::xml(change), Printer::opl(options)] {
        let Some(first) = printed(data, printer.clone()) else {
            return;
        };
        // XML has no words for some characters, and none for bytes that are no UTF-8.
        let is_plain = |c: char| c >= ' ' || c == '\n';
        if !std::str::from_utf8(&first).is_ok_and(|text| text.chars().all(is_plain)) {
            continue;
        }
        let second = printed(&first, printer).expect("what was printed can be read");
        assert_eq!(String::from_utf8_lossy(&second), String::from_utf8_lossy(&first));
    }
}

/// Reads a file and prints it; `None` if it cannot be read to its end.
fn printed(data: &[u8], mut printer: Printer) -> Option<Vec<u8>> {
    let mut reader = Reader::open(std::io::Cursor::new(data.to_vec())).ok()?;
    let mut out = Vec::new();
    let header = PrintHeader::from_text(reader.header(), "");
    printer.header(&header, &mut out);
    let mut block = Block::empty();
    for _ in 0..MOST_BLOCKS {
        let Some(part) = reader.read(&mut block).ok()? else {
            printer.end(&mut out);
            // Of nothing there is nothing to recognise.
            return (!out.is_empty()).then_some(out);
        };
        printer
            .elements(&block, part.action, &mut out)
            .expect("blocks of readers are sound");
    }
    None
}

/// Names of files and arguments that tell formats, and the recognition of contents.
pub fn format(data: &[u8]) {
    let _ = Sniffed::of(data);
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let _ = FormatSpec::of_name(text);
    if let Ok(spec) = text.parse::<FormatSpec>() {
        let _ = (spec.blob_compression(), spec.print_options());
    }
}
