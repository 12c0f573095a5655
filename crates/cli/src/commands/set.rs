//! `osmill set`: sorted sets of numbers on disk, for people and scripts.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use osmill_diskarray::{Batch, Durability, Encoding, Error as StoreError, Options, OrderedMap, Value};
use osmill_engine::{Error, Result};

use crate::args::Common;
use crate::render::{self, bytes, number};

/// A sorted set of numbers on disk, of any size in little memory: search, ranks, ranges, and changes that survive a crash.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  osmill set build ids.set < ids.txt
      Make a set of the numbers in a file, one a line, in any order.
  osmill set search ids.set 17 42
      Print those of the numbers that are there; exit code 1 if one is not.
  osmill set rank ids.set 1000000
      How many numbers are below a million.
  osmill set at ids.set 0 499
      The smallest, and the one with 499 before it.
  osmill set range ids.set 1000 1999 --count
      How many lie from 1000 to 1999.
  osmill set insert ids.set -i new.txt && osmill set delete ids.set -i old.bin --binary
      Each is there as a whole or, after a crash, not at all.

Exit codes: 0 done; 1 a number is not there, or the set is damaged; 2 wrong arguments or input.")]
pub enum SetCommand {
    /// Make a set
    ///
    /// Sorted input is written at the speed of the disk; other input is sorted in pieces as large as --memory allows.
    Build {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        keys: KeyArgs,
        /// Replace the set if it exists
        #[arg(short = 'O', long)]
        overwrite: bool,
        /// How numbers are stored
        #[arg(long, value_enum, value_name = "ENCODING", default_value = "packed")]
        encoding: EncodingName,
        /// Keep a value with each number: lines are 'NUMBER VALUE', binary input has 16 bytes for each
        #[arg(long)]
        values: bool,
    },
    /// Add numbers; those that are there already stay (with --values sets: get the new value)
    Insert {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        keys: KeyArgs,
    },
    /// Take numbers out; those that are not there are passed over
    Delete {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        keys: KeyArgs,
    },
    /// Print those of the numbers that are in the set; exit code 1 if one is not
    Search {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        keys: KeyArgs,
        /// Print those that are not there instead
        #[arg(long)]
        missing: bool,
    },
    /// Print the numbers at positions, 0 being the smallest; exit code 1 if there are not so many
    At {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        keys: KeyArgs,
    },
    /// Print for each number how many of the set are below it
    Rank {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        keys: KeyArgs,
    },
    /// Print the numbers from LOW to HIGH, both included, in order
    Range {
        #[command(flatten)]
        target: Target,
        /// Least number [default: 0]
        #[arg(value_name = "LOW")]
        low: Option<u64>,
        /// Greatest number [default: none]
        #[arg(value_name = "HIGH")]
        high: Option<u64>,
        /// Print how many there are instead
        #[arg(short, long)]
        count: bool,
        /// From the greatest down
        #[arg(short, long)]
        reverse: bool,
        /// Print so many at most
        #[arg(short = 'n', long, value_name = "N")]
        limit: Option<u64>,
        /// Write 8 bytes for each, least significant first (and 8 of its value)
        #[arg(short, long)]
        binary: bool,
    },
    /// Tell what a set holds and takes
    Stats {
        #[command(flatten)]
        target: Target,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Read the whole set and check it; exit code 1 if it is damaged
    Verify {
        #[command(flatten)]
        target: Target,
    },
    /// Move data into holes that changes have left, and cut the file
    Compact {
        #[command(flatten)]
        target: Target,
    },
}

/// The set.
#[derive(Debug, Args)]
pub struct Target {
    /// The set
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Where numbers come from.
#[derive(Debug, Args)]
pub struct KeyArgs {
    /// Numbers from 0 to 18446744073709551615; without any, and without -i, they are read from standard input
    #[arg(value_name = "NUMBER")]
    keys: Vec<String>,
    /// Read numbers from a file, one a line; '-' is standard input. Empty lines and what follows a '#' are passed over
    #[arg(short, long, value_name = "FILE")]
    input: Vec<PathBuf>,
    /// Input has 8 bytes for each number, least significant first, instead of lines
    #[arg(short, long)]
    binary: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EncodingName {
    /// Small: half a byte to six bytes a number
    Packed,
    /// Fast: 8 bytes a number
    Raw,
}

/// What stands beside a number: nothing, or another number.
trait Cell: Value + Copy {
    const PRESENT: bool;
    fn of(value: u64) -> Self;
    fn get(self) -> u64;
}

impl Cell for () {
    const PRESENT: bool = false;
    fn of(_: u64) {}
    fn get(self) -> u64 {
        0
    }
}

impl Cell for u64 {
    const PRESENT: bool = true;
    fn of(value: u64) -> u64 {
        value
    }
    fn get(self) -> u64 {
        self
    }
}

/// A failure on the way from input to store.
enum Failure {
    Store(StoreError),
    Input(Error),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::Store(error)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Store(error) => failed(error),
            Failure::Input(error) => error,
        }
    }
}

fn failed(error: StoreError) -> Error {
    match error {
        StoreError::Exists { file } => Error::Exists(file.into()),
        StoreError::ValueShape { file, .. } => Error::Usage(format!(
            "{file}: this is a store with values of another kind than sets have, perhaps one of 'osmill nodes'"
        )),
        StoreError::Io {
            what: "open",
            file,
            source,
            ..
        } => Error::io("open", Path::new(&file), source),
        error @ (StoreError::NotOurs { .. } | StoreError::Version { .. } | StoreError::Budget { .. }) => {
            Error::Usage(error.to_string())
        }
        error => Error::Failed(error.to_string()),
    }
}

/// Runs the command.
pub fn run(common: &Common, command: &SetCommand) -> Result<ExitCode> {
    if common.memory < LEAST_MEMORY {
        return Err(Error::Usage(format!(
            "--memory: sets need {} at least",
            bytes(LEAST_MEMORY)
        )));
    }
    if let SetCommand::Build {
        target,
        keys,
        overwrite,
        encoding,
        values,
    } = command
    {
        let encoding = match encoding {
            EncodingName::Packed => Encoding::Packed,
            EncodingName::Raw => Encoding::Raw,
        };
        return if *values {
            build::<u64>(common, &target.file, keys, *overwrite, encoding)
        } else {
            build::<()>(common, &target.file, keys, *overwrite, encoding)
        };
    }
    let (target, write) = match command {
        SetCommand::Insert { target, .. }
        | SetCommand::Delete { target, .. }
        | SetCommand::Compact { target } => (target, true),
        SetCommand::Build { target, .. }
        | SetCommand::Search { target, .. }
        | SetCommand::At { target, .. }
        | SetCommand::Rank { target, .. }
        | SetCommand::Range { target, .. }
        | SetCommand::Stats { target, .. }
        | SetCommand::Verify { target } => (target, false),
    };
    let options = || {
        let mut options = Options::default().memory(store_memory(common));
        options.read_only = !write;
        options
    };
    match OrderedMap::<()>::open(&target.file, options()) {
        Err(StoreError::ValueShape { .. }) => {
            let map = OrderedMap::<u64>::open(&target.file, options()).map_err(failed)?;
            on(common, command, map)
        }
        map => on(common, command, map.map_err(failed)?),
    }
}

/// Smallest memory that commands work in.
const LEAST_MEMORY: u64 = 8 << 20;

/// A quarter of the memory is for what is being read, the rest for the store.
fn store_memory(common: &Common) -> u64 {
    common.memory / 4 * 3
}

/// Numbers taken from the input at once.
fn piece(common: &Common) -> usize {
    // A number is in the input's buffer and in a sorted batch, and its answer is kept until it is printed.
    usize::try_from(common.memory / 4 / 64)
        .unwrap_or(usize::MAX)
        .clamp(4096, 8 << 20)
}

/// Runs a command on a set that exists.
fn on<V: Cell>(common: &Common, command: &SetCommand, mut map: OrderedMap<V>) -> Result<ExitCode> {
    let mut good = true;
    match command {
        SetCommand::Build { .. } => {}
        SetCommand::Insert { keys, .. } => {
            let (mut new, mut old) = (0, 0);
            for_pieces::<V>(common, keys, V::PRESENT, |rows| {
                let mut batch = Batch::new();
                rows.iter().for_each(|&(key, value)| batch.put(key, value));
                let applied = map.apply(&mut batch).map_err(failed)?;
                new += applied.inserted;
                old += applied.replaced;
                Ok(())
            })?;
            map.commit(Durability::Batch, &[]).map_err(failed)?;
            tell(
                common,
                &format!("{} inserted, {} were there", number(new), number(old)),
            );
        }
        SetCommand::Delete { keys, .. } => {
            let (mut removed, mut absent) = (0, 0);
            for_pieces::<()>(common, keys, false, |rows| {
                let mut batch = Batch::new();
                rows.iter().for_each(|row| batch.remove(row.0));
                let applied = map.apply(&mut batch).map_err(failed)?;
                removed += applied.removed;
                absent += applied.absent;
                Ok(())
            })?;
            map.commit(Durability::Batch, &[]).map_err(failed)?;
            tell(
                common,
                &format!("{} deleted, {} were not there", number(removed), number(absent)),
            );
        }
        SetCommand::Search { keys, missing, .. } => {
            let mut out = Output::new(false);
            for_pieces::<()>(common, keys, false, |rows| {
                let keys: Vec<u64> = rows.iter().map(|row| row.0).collect();
                for (key, value) in keys.iter().zip(map.get_many(&keys).map_err(failed)?) {
                    good &= value.is_some();
                    match value {
                        Some(value) if !missing => out.row(*key, value)?,
                        None if *missing => out.row(*key, ())?,
                        _ => {}
                    }
                }
                Ok(())
            })?;
            out.finish()?;
        }
        SetCommand::At { keys, .. } => {
            let mut out = Output::new(false);
            for_pieces::<()>(common, keys, false, |rows| {
                let ranks: Vec<u64> = rows.iter().map(|row| row.0).collect();
                for (rank, row) in ranks.iter().zip(map.at_many(&ranks).map_err(failed)?) {
                    match row {
                        Some((key, value)) => out.row(key, value)?,
                        None => {
                            eprintln!(
                                "osmill set at: no position {rank}; the set has {} numbers",
                                number(map.len())
                            );
                            good = false;
                        }
                    }
                }
                Ok(())
            })?;
            out.finish()?;
        }
        SetCommand::Rank { keys, .. } => {
            let mut out = Output::new(false);
            for_pieces::<()>(common, keys, false, |rows| {
                let keys: Vec<u64> = rows.iter().map(|row| row.0).collect();
                for rank in map.rank_many(&keys).map_err(failed)? {
                    out.row(rank, ())?;
                }
                Ok(())
            })?;
            out.finish()?;
        }
        SetCommand::Range {
            low,
            high,
            count,
            reverse,
            limit,
            binary,
            ..
        } => {
            let (low, high) = (low.unwrap_or(0), high.unwrap_or(u64::MAX));
            if low > high {
                return Err(Error::Usage(format!("LOW is {low}, above HIGH, which is {high}")));
            }
            let limit = limit.unwrap_or(u64::MAX);
            if *count {
                let n = map.count(low..=high).map_err(failed)?;
                render::print(&format!("{}\n", n.min(limit)))?;
                return Ok(ExitCode::SUCCESS);
            }
            let mut out = Output::new(*binary);
            let mut rows = map.range(low..=high);
            let mut left = limit;
            while left > 0
                && let Some(row) = if *reverse { rows.next_back() } else { rows.next() }
            {
                let (key, value) = row.map_err(failed)?;
                out.row(key, value)?;
                left -= 1;
            }
            out.finish()?;
        }
        SetCommand::Stats { json, .. } => {
            let stats = map.stats().map_err(failed)?;
            let text = if *json {
                format!("{:#}\n", serde_json::json!(stats))
            } else {
                format!("{stats}\n")
            };
            render::print(&text)?;
        }
        SetCommand::Verify { .. } => {
            let report = map.verify(None).map_err(failed)?;
            render::print(&format!("{report}\n"))?;
            good = report.is_sound();
        }
        SetCommand::Compact { .. } => {
            let report = map.compact(u64::MAX).map_err(failed)?;
            tell(common, &report.to_string());
        }
    }
    Ok(ExitCode::from(u8::from(!good)))
}

fn tell(common: &Common, text: &str) {
    if !common.quiet {
        eprintln!("osmill set: {text}");
    }
}

/// A file being made; goes away unless it is finished.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // It may never have been made, or have got its name.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn build<V: Cell>(
    common: &Common,
    file: &Path,
    keys: &KeyArgs,
    overwrite: bool,
    encoding: Encoding,
) -> Result<ExitCode> {
    if file.exists() && !overwrite {
        return Err(Error::Exists(file.to_owned()));
    }
    let Some(name) = file.file_name() else {
        return Err(Error::Usage(format!("{}: this names no file", file.display())));
    };
    let mut unfinished = name.to_owned();
    unfinished.push(format!(".{}.unfinished", std::process::id()));
    let unfinished = Unfinished(file.with_file_name(unfinished));
    let options = Options::default().memory(store_memory(common)).encoding(encoding);
    let mut map = OrderedMap::<V>::create(&unfinished.0, options).map_err(failed)?;

    // What ascends from the start is written in one go; from the first number that does not on, the rest comes in batches.
    let mut rows = Input::<V>::new(keys, V::PRESENT)?.peekable();
    let mut last: Option<u64> = None;
    let ascending = std::iter::from_fn(|| {
        rows.next_if(|row| {
            row.as_ref()
                .map_or(true, |row| last.is_none_or(|last| row.0 > last))
        })
        .map(|row| {
            let row = row.map_err(Failure::Input)?;
            last = Some(row.0);
            Ok::<_, Failure>(row)
        })
    });
    map.try_bulk_load(ascending)?;
    let mut batch = Batch::new();
    let most = piece(common);
    for row in rows {
        let (key, value) = row?;
        batch.put(key, value);
        if batch.len() == most {
            map.apply(&mut batch).map_err(failed)?;
            batch.clear();
        }
    }
    map.apply(&mut batch).map_err(failed)?;
    map.commit(Durability::Batch, &[]).map_err(failed)?;
    let stats = map.stats().map_err(failed)?;
    drop(map);
    std::fs::rename(&unfinished.0, file).map_err(|e| Error::io("finish", file, e))?;
    tell(
        common,
        &format!(
            "{} numbers, {} ({:.2} bytes a number)",
            number(stats.keys),
            bytes(stats.used_bytes),
            stats.bytes_a_key
        ),
    );
    Ok(ExitCode::SUCCESS)
}

/// Hands over the numbers of the input, a piece at a time.
fn for_pieces<V: Cell>(
    common: &Common,
    keys: &KeyArgs,
    values: bool,
    mut f: impl FnMut(&[(u64, V)]) -> Result<()>,
) -> Result<()> {
    let most = piece(common);
    let mut rows = Vec::new();
    for row in Input::<V>::new(keys, values)? {
        rows.push(row?);
        if rows.len() == most {
            f(&rows)?;
            rows.clear();
        }
    }
    f(&rows)
}

/// Numbers, and with `values` their values, from arguments, then from files.
struct Input<V> {
    arguments: std::vec::IntoIter<(u64, V)>,
    files: std::vec::IntoIter<PathBuf>,
    open: Option<Source>,
    binary: bool,
    values: bool,
    value: std::marker::PhantomData<V>,
}

/// A file being read.
struct Source {
    path: PathBuf,
    reader: Box<dyn BufRead>,
    line: String,
    /// Lines or records read.
    at: u64,
}

impl<V: Cell> Input<V> {
    fn new(keys: &KeyArgs, values: bool) -> Result<Self> {
        let mut arguments = Vec::new();
        for text in &keys.keys {
            let (key, value) = text
                .split_once([' ', '='])
                .map_or((text.as_str(), None), |(k, v)| (k, Some(v)));
            let row = parse::<V>(key, value, values).map_err(|why| {
                let hint = if Path::new(text).exists() {
                    format!("; to read numbers from the file, write -i {text}")
                } else {
                    String::new()
                };
                Error::Usage(format!("'{text}' {why}{hint}"))
            })?;
            arguments.push(row);
        }
        let mut files = keys.input.clone();
        if arguments.is_empty() && files.is_empty() {
            files.push("-".into());
        }
        Ok(Self {
            arguments: arguments.into_iter(),
            files: files.into_iter(),
            open: None,
            binary: keys.binary,
            values,
            value: std::marker::PhantomData,
        })
    }

    fn advance(&mut self) -> Result<Option<(u64, V)>> {
        if let Some(row) = self.arguments.next() {
            return Ok(Some(row));
        }
        loop {
            let source = match &mut self.open {
                Some(source) => source,
                None => match self.files.next() {
                    Some(path) => self.open.insert(Source::open(path)?),
                    None => return Ok(None),
                },
            };
            let row = if self.binary {
                source.record(self.values)?
            } else {
                source.text(self.values)?
            };
            match row {
                Some(row) => return Ok(Some(row)),
                None => self.open = None,
            }
        }
    }
}

impl<V: Cell> Iterator for Input<V> {
    type Item = Result<(u64, V)>;
    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}

impl Source {
    fn open(path: PathBuf) -> Result<Self> {
        const BUFFER: usize = 1 << 18;
        let (path, reader): (PathBuf, Box<dyn BufRead>) = if path == Path::new("-") {
            let reader = BufReader::with_capacity(BUFFER, std::io::stdin());
            ("standard input".into(), Box::new(reader))
        } else {
            let file = File::open(&path).map_err(|e| Error::io("open", &path, e))?;
            (path, Box::new(BufReader::with_capacity(BUFFER, file)))
        };
        Ok(Self {
            path,
            reader,
            line: String::new(),
            at: 0,
        })
    }

    fn text<V: Cell>(&mut self, values: bool) -> Result<Option<(u64, V)>> {
        /// No line of numbers is longer.
        const LONGEST: u64 = 4096;
        loop {
            self.line.clear();
            self.at += 1;
            let mut limited = (&mut self.reader).take(LONGEST);
            let read = limited.read_line(&mut self.line).map_err(|e| match e.kind() {
                std::io::ErrorKind::InvalidData => Error::Usage(format!(
                    "{}: line {} is not text; for numbers of 8 bytes each use --binary",
                    self.path.display(),
                    self.at
                )),
                _ => Error::io("read", &self.path, e),
            })?;
            if read == 0 {
                return Ok(None);
            }
            let text = self.line.split('#').next().unwrap_or_default();
            let mut words = text.split_whitespace();
            let Some(key) = words.next() else { continue };
            let row = match (words.next(), words.next()) {
                (value, None) => parse(key, value, values),
                _ => Err("has too many words".to_owned()),
            };
            return row.map(Some).map_err(|why| {
                let shown: String = text.trim().chars().take(60).collect();
                Error::Usage(format!(
                    "{}: line {}: '{shown}' {why}",
                    self.path.display(),
                    self.at
                ))
            });
        }
    }

    fn record<V: Cell>(&mut self, values: bool) -> Result<Option<(u64, V)>> {
        let mut record = [0u8; 16];
        let size = if values { 16 } else { 8 };
        let mut filled = 0;
        while filled < size {
            match self.reader.read(&mut record[filled..size]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io("read", &self.path, e)),
            }
        }
        if filled == 0 {
            return Ok(None);
        }
        if filled < size {
            return Err(Error::Usage(format!(
                "{}: the input ends inside a number: {} bytes are not a multiple of {size}",
                self.path.display(),
                self.at * size as u64 + filled as u64
            )));
        }
        self.at += 1;
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&record[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        Ok(Some((word(0), V::of(word(8)))))
    }
}

/// Reads a number and its value; `Err` says what is wrong with them, to follow the text.
fn parse<V: Cell>(key: &str, value: Option<&str>, values: bool) -> Result<(u64, V), String> {
    let one = |text: &str| {
        text.parse::<u64>()
            .map_err(|_| "is not a whole number from 0 to 18446744073709551615".to_owned())
    };
    match (values, value) {
        (true, Some(value)) => Ok((one(key)?, V::of(one(value)?))),
        (true, None) => Err("has no value; this set wants 'NUMBER VALUE'".to_owned()),
        (false, Some(_)) => Err("has more than one number".to_owned()),
        (false, None) => Ok((one(key)?, V::of(0))),
    }
}

/// Standard output.
struct Output {
    out: BufWriter<std::io::StdoutLock<'static>>,
    binary: bool,
}

impl Output {
    fn new(binary: bool) -> Self {
        Self {
            out: BufWriter::with_capacity(1 << 18, std::io::stdout().lock()),
            binary,
        }
    }

    fn row<V: Cell>(&mut self, key: u64, value: V) -> Result<()> {
        let written = match (self.binary, V::PRESENT) {
            (true, false) => self.out.write_all(&key.to_le_bytes()),
            (true, true) => self
                .out
                .write_all(&key.to_le_bytes())
                .and_then(|()| self.out.write_all(&value.get().to_le_bytes())),
            (false, false) => writeln!(self.out, "{key}"),
            (false, true) => writeln!(self.out, "{key} {}", value.get()),
        };
        written.map_err(unwritten)
    }

    fn finish(mut self) -> Result<()> {
        self.out.flush().map_err(unwritten)
    }
}

fn unwritten(error: std::io::Error) -> Error {
    Error::io("write", Path::new("standard output"), error)
}
