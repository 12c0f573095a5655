//! Converts a text file: `convert FORMAT [THREADS] < INPUT > OUTPUT`, where FORMAT is `osm`, `osc`, `opl` with options as
//! `osmium` has them, or `count`, which reads only.

use std::io::{BufWriter, Write};

use osmill_pbf::Block;
use osmill_text::format::FormatSpec;
use osmill_text::{PrintHeader, Printer, Reader};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = std::env::args().nth(1).unwrap_or_default();
    let threads = std::env::args().nth(2).map_or(Ok(1), |n| n.parse())?;
    let mut reader = Reader::open_with(std::io::stdin(), threads)?;
    let mut block = Block::empty();
    let mut counts = [0u64; 3];
    if argument == "count" {
        let mut bytes = Vec::new();
        while let Some(part) = reader.next_block(&mut bytes)? {
            counts[part.kind as usize] += u64::from(part.count);
        }
        let [nodes, ways, relations] = counts;
        println!("{nodes} nodes, {ways} ways, {relations} relations");
    } else {
        let spec: FormatSpec = argument.parse()?;
        spec.writable(&argument)?;
        let mut printer = Printer::of(&spec).ok_or("PBF is not text")?;
        printer.options_mut().deleted_locations = true;
        let mut out = BufWriter::new(std::io::stdout().lock());
        let mut text = Vec::new();
        let generator = reader.header().generator.clone().unwrap_or_default();
        printer.header(&PrintHeader::from_text(reader.header(), &generator), &mut text);
        while let Some(part) = reader.read(&mut block)? {
            printer.elements(&block, part.action, &mut text)?;
            out.write_all(&text)?;
            text.clear();
        }
        printer.end(&mut text);
        out.write_all(&text)?;
        out.flush()?;
    }
    for warning in reader.warnings() {
        eprintln!("{warning}");
    }
    Ok(())
}
