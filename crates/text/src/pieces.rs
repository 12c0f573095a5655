//! Parsing several pieces of a window at once.
//!
//! A window of text is cut where an element seems to begin, and the pieces are parsed side by side, each from
//! the state in which the window begins. That is a guess: a comment may hold what looks like an element, or
//! an action may end in between. So the results are taken in order, and only as long as the piece before was
//! read to its end and ended in that same state; what follows the first wrong guess is parsed again. A piece
//! with an error is left to the caller, too, who parses it alone. The outcome is that of one parser in every
//! case.

use crate::assemble::{Assembler, TextBlock};
use crate::reader::Parse;

/// Bytes in a piece: enough for several full blocks.
pub(crate) const PIECE: usize = 3 << 20;

/// A parser whose input can be cut.
pub(crate) trait Fork: Parse + Send + Sync + Sized {
    /// Where an element seems to begin, not before `from`; `None` where the state does not allow a cut.
    fn cut(&self, data: &[u8], from: usize) -> Option<usize>;
    /// A parser in the same state that has seen nothing.
    fn fork(&self) -> Self;
    /// Whether both are in the same state.
    fn agrees(&self, other: &Self) -> bool;
    /// Goes on from where `piece`, forked from this parser, has ended.
    fn join(&mut self, piece: Self);
}

/// What came of a window.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// Bytes that are done with.
    pub done: usize,
    pub blocks: Vec<(TextBlock, Vec<u8>)>,
    /// With offsets in the window.
    pub warnings: Vec<(usize, String)>,
    /// Whether something is wrong in the first piece; nothing is done then.
    pub failed: bool,
}

/// What came of a piece.
struct Piece<P> {
    parser: P,
    done: usize,
    blocks: Vec<(TextBlock, Vec<u8>)>,
    failed: bool,
}

/// Parses a window on up to `threads` threads; `last` as in [`Parse::parse`].
pub(crate) fn parse<P: Fork>(parser: &mut P, data: &[u8], last: bool, threads: usize) -> Round {
    let size = (data.len() / threads).max(PIECE / 2);
    let mut starts = vec![0];
    while let Some(from) = starts
        .last()
        .map(|start| start + size)
        .filter(|from| *from < data.len())
    {
        match parser.cut(data, from) {
            Some(cut) => starts.push(cut),
            None => break,
        }
    }
    let entry = parser.fork();
    let piece = |i: usize| {
        let end = starts.get(i + 1).copied();
        let text = &data[starts[i]..end.unwrap_or(data.len())];
        read_piece(entry.fork(), text, last && end.is_none())
    };
    let pieces: Vec<Option<Piece<P>>> = std::thread::scope(|scope| {
        let piece = &piece;
        let others: Vec<_> = (1..starts.len())
            .map(|i| {
                std::thread::Builder::new()
                    .name("parse".into())
                    .spawn_scoped(scope, move || piece(i))
            })
            .collect();
        let first = Some(piece(0));
        // A thread that could not be started leaves its piece to the next round.
        let others = others.into_iter().map(|thread| thread.ok()?.join().ok());
        std::iter::once(first).chain(others).collect()
    });
    let mut round = Round::default();
    for (i, piece) in pieces.into_iter().enumerate() {
        let Some(mut piece) = piece.filter(|_| round.done == starts[i] && parser.agrees(&entry)) else {
            break;
        };
        if piece.failed {
            round.failed = i == 0;
            break;
        }
        round.done += piece.done;
        round.blocks.append(&mut piece.blocks);
        let warnings = piece.parser.warnings().drain(..);
        round
            .warnings
            .extend(warnings.map(|(at, text)| (starts[i] + at, text)));
        parser.join(piece.parser);
    }
    round
}

fn read_piece<P: Fork>(mut parser: P, data: &[u8], last: bool) -> Piece<P> {
    let mut assembler = Assembler::default();
    let (mut done, mut blocks, mut warnings) = (0, Vec::new(), Vec::new());
    let take = |assembler: &mut Assembler, blocks: &mut Vec<_>| {
        let mut bytes = Vec::new();
        let block = assembler.take(&mut bytes);
        blocks.extend(block.map(|block| (block, bytes)));
        block.is_some()
    };
    let failed = loop {
        let parsed = parser.parse(&data[done..], last, &mut assembler);
        warnings.extend(parser.warnings().drain(..).map(|(at, text)| (done + at, text)));
        match parsed {
            Ok(more) => done += more,
            Err(_) => break true,
        }
        if !take(&mut assembler, &mut blocks) {
            break false;
        }
    };
    assembler.flush();
    take(&mut assembler, &mut blocks);
    *parser.warnings() = warnings;
    Piece {
        parser,
        done,
        blocks,
        failed,
    }
}
