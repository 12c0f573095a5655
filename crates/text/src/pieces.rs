//! Parsing pieces of a file ahead of its reader, several at once.
//!
//! Text is cut where an element seems to begin, and each piece is parsed on a thread of a pool from the state in
//! which the parser will probably be there. Both are guesses: a comment may hold what looks like an element, or
//! an action may end in between. So the results are taken in the order of the file, and only where the piece
//! before was read to its end and ended in the state that was guessed. What a wrong guess or an error has spoilt
//! is given back as text, for the reader to parse on its own. The outcome is that of one parser in every case.
//!
//! Nothing waits for a whole round of pieces: while the reader hands out blocks of one piece the threads are at
//! the next ones, of which a few are under way at any time.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::assemble::{Assembler, TextBlock};
use crate::reader::Parse;
use crate::source::{CHUNK, Source};

/// Bytes in a piece: enough for several full blocks.
pub(crate) const PIECE: usize = 3 << 20;

/// Bytes before the end of a piece in which an element begins, nearly always.
const NEAR: usize = 64 << 10;

/// A parser whose input can be cut.
pub(crate) trait Fork: Parse + Send + Sized {
    /// Where an element seems to begin, not before `from`; `None` where the state does not allow a cut.
    fn cut(&self, data: &[u8], from: usize) -> Option<usize>;
    /// A parser in the same state that has seen nothing.
    fn fork(&self) -> Self;
    /// A parser in the state that this one probably has behind `data`, at whose end an element seems to begin.
    fn fork_behind(&self, data: &[u8]) -> Self;
    /// Whether both are in the same state.
    fn agrees(&self, other: &Self) -> bool;
    /// Goes on from where `piece`, forked from this parser or in a state it agrees with, has ended.
    fn join(&mut self, piece: Self);
}

/// What came of a piece.
#[derive(Debug)]
pub(crate) struct Piece<P> {
    /// The parser at the end, with offsets of warnings in the piece.
    pub parser: P,
    pub text: Vec<u8>,
    /// Bytes that are done with.
    pub done: usize,
    pub blocks: Vec<(TextBlock, Vec<u8>)>,
    /// Whether something is wrong.
    pub failed: bool,
}

impl<P: Fork> Piece<P> {
    fn parse(mut parser: P, text: Vec<u8>) -> Self {
        let mut assembler = Assembler::default();
        let (mut done, mut blocks, mut warnings) = (0, Vec::new(), Vec::new());
        let failed = loop {
            let parsed = parser.parse(&text[done..], false, &mut assembler);
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
            text,
            done,
            blocks,
            failed,
        }
    }
}

/// Moves the block that is ready, if there is one.
fn take(assembler: &mut Assembler, blocks: &mut Vec<(TextBlock, Vec<u8>)>) -> bool {
    let mut bytes = Vec::new();
    let block = assembler.take(&mut bytes);
    blocks.extend(block.map(|block| (block, bytes)));
    block.is_some()
}

type Job<P> = (P, Vec<u8>, SyncSender<Piece<P>>);

/// Threads that parse pieces.
#[derive(Debug)]
struct Pool<P> {
    jobs: Option<Sender<Job<P>>>,
    threads: Vec<JoinHandle<()>>,
}

impl<P: Fork + 'static> Pool<P> {
    /// As many threads of `threads` as can be started, at least one.
    fn start(threads: usize) -> io::Result<Self> {
        let (jobs, queue) = channel::<Job<P>>();
        let queue = Arc::new(Mutex::new(queue));
        let start = || {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().name("parse".into()).spawn(move || {
                loop {
                    let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((parser, text, answer)) = job else { return };
                    // Nobody waits for the answer where the reader was dropped.
                    let _ = answer.send(Piece::parse(parser, text));
                }
            })
        };
        let mut pool = Pool {
            jobs: Some(jobs),
            threads: vec![start()?],
        };
        let others = (1..threads).map_while(|_| start().ok());
        pool.threads.extend(others);
        Ok(pool)
    }

    fn parse(&self, parser: P, text: Vec<u8>) -> Receiver<Piece<P>> {
        let (answer, result) = sync_channel(1);
        if let Some(jobs) = &self.jobs {
            // Should the threads be gone, so is the answer.
            let _ = jobs.send((parser, text, answer));
        }
        result
    }
}

impl<P> Drop for Pool<P> {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A panic there was told when its answer did not come.
            let _ = thread.join();
        }
    }
}

/// What comes next in a file.
#[derive(Debug)]
pub(crate) enum Next<P> {
    /// A piece, and the state in which it was begun.
    Piece(P, Piece<P>),
    /// Text that was not cut, and whether it is the last of the file.
    Text(Vec<u8>, bool),
}

/// The text of a file behind what its reader has, cut into pieces that are parsed ahead.
#[derive(Debug)]
pub(crate) struct Ahead<P> {
    threads: usize,
    /// Started for the first piece.
    pool: Option<Pool<P>>,
    /// Pieces under way, in the order of the file, and the states in which they were begun.
    pieces: VecDeque<(P, Receiver<Piece<P>>)>,
    /// Text behind the last piece.
    tail: Vec<u8>,
    /// The state in which the tail probably begins.
    state: P,
    /// Buffers of pieces that are done with.
    spare: Vec<Vec<u8>>,
}

impl<P: Fork + 'static> Ahead<P> {
    /// No text yet; up to `threads` threads will parse.
    pub fn new(parser: &P, threads: usize) -> Self {
        Ahead {
            threads,
            pool: None,
            pieces: VecDeque::new(),
            tail: Vec::new(),
            state: parser.fork(),
            spare: Vec::new(),
        }
    }

    /// Whether all text was given back.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.tail.is_empty()
    }

    /// Takes a parser's unread text over, where there is no other.
    pub fn resume(&mut self, parser: &P, text: Vec<u8>) {
        debug_assert!(self.is_empty(), "text is taken in order");
        self.tail = text;
        self.state = parser.fork();
    }

    /// What comes next, after as many pieces have been begun as may be under way.
    pub fn next(&mut self, source: &mut Source) -> io::Result<Next<P>> {
        let has_ended = self.advance(source)?;
        Ok(match self.pop()? {
            Some((entry, piece)) => Next::Piece(entry, piece),
            None => Next::Text(std::mem::take(&mut self.tail), has_ended),
        })
    }

    /// The text that comes next, parsed or not; empty where there is none before more is read from the source.
    pub fn next_text(&mut self) -> io::Result<Vec<u8>> {
        Ok(match self.pop()? {
            Some((_, piece)) => piece.text,
            None => std::mem::take(&mut self.tail),
        })
    }

    fn pop(&mut self) -> io::Result<Option<(P, Piece<P>)>> {
        let Some((entry, result)) = self.pieces.pop_front() else {
            return Ok(None);
        };
        let gone = |_| io::Error::other("a thread that parses has failed");
        Ok(Some((entry, result.recv().map_err(gone)?)))
    }

    /// Begins pieces. Gives whether the source has ended.
    fn advance(&mut self, source: &mut Source) -> io::Result<bool> {
        while self.pieces.len() < self.threads + 2 {
            while self.tail.len() < PIECE {
                let Some(chunk) = source.next()? else {
                    return Ok(true);
                };
                self.tail.extend_from_slice(&chunk);
                source.recycle(chunk);
            }
            let cut = |from: usize| self.state.cut(&self.tail, from).filter(|at| *at > 0);
            let Some(at) = cut(self.tail.len() - NEAR).or_else(|| cut(self.tail.len() / 2)) else {
                // An element or a comment of this size is left to the reader.
                break;
            };
            if !self.begin(at) {
                break;
            }
        }
        Ok(false)
    }

    /// Begins a piece that ends here in the tail; `false` where no thread can be started for it.
    fn begin(&mut self, at: usize) -> bool {
        if self.pool.is_none() {
            self.pool = Pool::start(self.threads).ok();
        }
        let Some(pool) = &self.pool else {
            return false;
        };
        let mut rest = self.spare.pop().unwrap_or_default();
        rest.clear();
        rest.reserve(PIECE + CHUNK);
        rest.extend_from_slice(&self.tail[at..]);
        let mut text = std::mem::replace(&mut self.tail, rest);
        text.truncate(at);
        let next = self.state.fork_behind(&text);
        let entry = std::mem::replace(&mut self.state, next);
        let result = pool.parse(entry.fork(), text);
        self.pieces.push_back((entry, result));
        true
    }

    /// Takes a buffer back for its memory.
    pub fn recycle(&mut self, text: Vec<u8>) {
        if self.spare.len() < 2 {
            self.spare.push(text);
        }
    }
}
