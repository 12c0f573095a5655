//! Inputs of any format.
//!
//! What a file holds is recognised by its content. A PBF file is read where it stands. Text is read once: into
//! a temporary PBF file with an index, over which a command can go as often as it likes ([`Job::open`]), or,
//! for commands with a single pass, block by block ([`Job::stream`]). Standard input and pipes are copied in
//! the first case and read as they come in the second.

use std::fs::File;
use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use osmill_pbf::{FileHeader, SORTED};
use osmill_text::format::{FormatSpec, Sniffed, Syntax};

use crate::error::{Error, Result};
use crate::file::{ReadFile, read_full};
use crate::job::Job;
use crate::output::Sink;
use crate::plan::{Origin, Plan, merge_headers};
use crate::sidecar::Sidecar;
use crate::stream::{BlockStream, Bytes, HEAD, TextFormat, is_text};

/// A file to read in passes over its blobs.
#[derive(Debug)]
pub struct Input {
    file: Arc<ReadFile>,
    /// Whether the file is a copy of standard input or a pipe.
    spooled: bool,
    /// If the file is a copy of text.
    text: Option<Text>,
    /// What stands in the index beside the file.
    sidecar: Option<Sidecar>,
    /// Whether the file holds several inputs.
    gathered: bool,
}

/// Text that was read into a temporary file.
#[derive(Debug)]
struct Text {
    format: TextFormat,
    header: FileHeader,
    /// Of each data blob.
    origins: Vec<Origin>,
    /// Bytes of the file, if it is one.
    size: Option<u64>,
}

impl Input {
    /// Opens a PBF file; `-` is standard input, which is copied to `scratch` first, since plans need to go
    /// back and forth. [`Job::open`] takes other formats, too.
    pub fn open(path: &Path, direct: bool, scratch: &Path) -> Result<Input> {
        if is_stream(path) {
            let (name, bytes) = open_stream(path)?;
            return Input::copy(name, bytes, scratch);
        }
        Ok(Input {
            file: Arc::new(ReadFile::open(path, direct)?),
            spooled: false,
            text: None,
            sidecar: None,
            gathered: false,
        })
    }

    fn copy(name: PathBuf, mut source: Bytes, scratch: &Path) -> Result<Input> {
        let mut copy = tempfile::tempfile_in(scratch).map_err(|e| Error::io("create", scratch, e))?;
        let mut bytes = vec![0; 1 << 20];
        let mut total = 0;
        loop {
            let n = read_full(&mut source, &mut bytes).map_err(|e| Error::io("read", &name, e))?;
            copy.write_all(&bytes[..n])
                .map_err(|e| Error::write(scratch, total, e))?;
            total += n as u64;
            if n < bytes.len() {
                break;
            }
        }
        Ok(Input {
            file: Arc::new(ReadFile::from_file(copy, name)?),
            spooled: true,
            text: None,
            sidecar: None,
            gathered: false,
        })
    }

    /// The file, or the copy of what was read.
    pub fn file(&self) -> &Arc<ReadFile> {
        &self.file
    }

    /// The path, for messages.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Whether the input is a copy of standard input or a pipe.
    pub fn is_spooled(&self) -> bool {
        self.spooled
    }

    /// The format, if the file is a copy of text.
    pub fn text_format(&self) -> Option<TextFormat> {
        self.text.as_ref().map(|text| text.format)
    }

    /// Whether the input is a change file.
    pub fn is_change(&self) -> bool {
        self.text_format().is_some_and(|format| format.change)
    }

    /// Bytes of the input; of the copy, where it came through a pipe.
    pub fn size(&self) -> u64 {
        let text = self.text.as_ref().and_then(|text| text.size);
        text.unwrap_or_else(|| self.file.size())
    }

    /// The first bytes of the file.
    pub fn head(&self) -> Result<Vec<u8>> {
        self.file.head()
    }

    /// Walks the blob headers; see [`Plan`]. Blobs without index records get those of a side-car index, if
    /// [`Job::open`] found one. Blobs made from text have index records, and the header says of them
    /// what the text says, and whether they are sorted.
    pub fn plan(&self, threads: usize) -> Result<Plan> {
        let mut plan = Plan::walk(&self.file, threads)?;
        if let Some(sidecar) = &self.sidecar {
            sidecar.fill(&mut plan.blobs);
        }
        if let Some(text) = &self.text {
            for (blob, origin) in plan.blobs.iter_mut().zip(&text.origins) {
                blob.origin = *origin;
            }
            plan.header = text.header.clone();
        }
        if self.text.is_some() || self.gathered {
            plan.header.set_optional(SORTED, plan.is_sorted() == Some(true));
        }
        Ok(plan)
    }
}

/// Whether a path cannot be read at any place.
fn is_stream(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    path == Path::new("-")
        || path
            .metadata()
            .is_ok_and(|m| m.file_type().is_fifo() || m.file_type().is_char_device())
}

/// Opens what is read from begin to end, with a name for messages.
fn open_stream(path: &Path) -> Result<(PathBuf, Bytes)> {
    if path == Path::new("-") {
        return Ok((PathBuf::from("standard input"), Bytes::new(std::io::stdin())));
    }
    let file = File::open(path).map_err(|e| Error::io("open", path, e))?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        let error = std::io::Error::from(std::io::ErrorKind::IsADirectory);
        return Err(Error::io("open", path, error));
    }
    Ok((path.to_owned(), Bytes::new(file)))
}

/// An input whose first bytes have been looked at.
enum Recognised {
    Pbf(PathBuf, Bytes),
    Text(PathBuf, Bytes, FormatSpec),
}

impl Job {
    fn recognise(&self, path: &Path) -> Result<Recognised> {
        let given = &self.options().input_format;
        let named = given.clone().or_path(path).unwrap_or_else(|_| given.clone());
        let (name, mut bytes) = open_stream(path)?;
        let mut head = vec![0; HEAD];
        let found = read_full(&mut bytes, &mut head).map_err(|e| Error::io("read", &name, e))?;
        head.truncate(found);
        let text = match Sniffed::of(&head) {
            // OPL of nothing has no bytes.
            Sniffed::Empty => named.syntax == Some(Syntax::Opl),
            _ => is_text(&head),
        };
        let bytes = Bytes::new(Cursor::new(head).chain(bytes));
        if !text {
            return Ok(Recognised::Pbf(name, bytes));
        }
        Ok(Recognised::Text(name, bytes, named))
    }

    fn text_stream(&self, name: PathBuf, bytes: Bytes, named: &FormatSpec) -> Result<BlockStream> {
        let stream = BlockStream::text(bytes, name, named, self.options().threads)?;
        let given = self.options().input_format.syntax;
        if let (Some(given), Some(found)) = (given, stream.text_format())
            && given != found.syntax
        {
            self.warn(format!(
                "{}: -F says {given}, but this is {found} and read as that",
                stream.path().display()
            ));
        }
        Ok(stream)
    }

    /// Opens an input of any format for passes; see the module's documentation. What is copied for that is told.
    pub fn open(&self, path: &Path) -> Result<Input> {
        let options = self.options();
        let input = match self.recognise(path)? {
            Recognised::Pbf(name, bytes) if is_stream(path) => Input::copy(name, bytes, &options.scratch)?,
            Recognised::Pbf(..) => {
                let mut input = Input::open(path, options.direct_io, &options.scratch)?;
                match Sidecar::beside(&input.file)? {
                    Ok(sidecar) => input.sidecar = sidecar,
                    Err(message) => self.warn(message),
                }
                return Ok(input);
            }
            Recognised::Text(name, bytes, named) => {
                let size = std::fs::metadata(path).ok().filter(|_| !is_stream(path));
                let size = size.map(|metadata| metadata.len());
                self.spool(self.text_stream(name, bytes, &named)?, size)?
            }
        };
        self.warn(format!(
            "{} was {} a temporary file in {} ({} bytes), since it is read more than once",
            input.path().display(),
            match input.text {
                Some(_) => "read into",
                None => "copied to",
            },
            options.scratch.display(),
            input.file.size()
        ));
        Ok(input)
    }

    /// Opens several inputs as one that holds them one after the other: a temporary file with an index, into which
    /// PBF blobs are copied as they are. It is sorted if they are and none begins before the one before it ends.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if there is no input. One alone is opened by [`Job::open`].
    pub fn open_all(&self, paths: &[PathBuf]) -> Result<Input> {
        let [first, others @ ..] = paths else {
            return Err(Error::Usage("no input file was given".into()));
        };
        if others.is_empty() {
            return self.open(first);
        }
        let threads = self.options().threads;
        let inputs: Vec<Input> = paths.iter().map(|path| self.open(path)).collect::<Result<_>>()?;
        let plans: Vec<Plan> = inputs
            .iter()
            .map(|input| input.plan(threads))
            .collect::<Result<_>>()?;
        let mut header = merge_headers(plans.iter().map(|plan| plan.header.clone()).collect());
        header.set_optional(SORTED, false);
        let sink = Sink::scratch(&self.options().scratch, &header)?;
        for (input, plan) in inputs.iter().zip(&plans) {
            self.pass("gather", input.file(), &plan.blobs).write(
                &sink,
                || (),
                |(), blob, out| out.copy(blob),
            )?;
        }
        let name = PathBuf::from(format!(
            "{} and {} more",
            inputs[0].path().display(),
            others.len()
        ));
        let file = sink.finish_scratch(&name)?;
        self.warn(format!(
            "{} were gathered in a temporary file in {} ({} bytes), since they are read more than once",
            name.display(),
            self.options().scratch.display(),
            file.size()
        ));
        Ok(Input {
            file: Arc::new(file),
            spooled: true,
            text: None,
            gathered: true,
            sidecar: None,
        })
    }

    /// Reads text into a temporary file.
    fn spool(&self, stream: BlockStream, size: Option<u64>) -> Result<Input> {
        let (path, header) = (stream.path().to_owned(), stream.header().clone());
        let sink = Sink::scratch(&self.options().scratch, &header)?;
        let stream = Mutex::new(stream);
        let states = self.stream_pass("parse", &stream).write(
            &sink,
            Vec::<(u64, Origin)>::new,
            |origins, blob, out| {
                origins.push((blob.entry().number, blob.entry().origin));
                out.copy(blob)
            },
        )?;
        let stream = stream.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut origins: Vec<_> = states.into_iter().flatten().collect();
        origins.sort_unstable_by_key(|(number, _)| *number);
        let file = sink.finish_scratch(&path)?;
        self.end_stream(&stream);
        Ok(Input {
            file: Arc::new(file),
            spooled: false,
            text: stream.text_format().map(|format| Text {
                format,
                header,
                origins: origins.into_iter().map(|(_, origin)| origin).collect(),
                size,
            }),
            sidecar: None,
            gathered: false,
        })
    }

    /// Opens an input of any format for a single pass, [`Job::stream_pass`], if it cannot or need not be read
    /// otherwise: it is text, or comes through a pipe. `None` for PBF files.
    pub fn stream(&self, path: &Path) -> Result<Option<BlockStream>> {
        match self.recognise(path)? {
            Recognised::Pbf(name, bytes) if is_stream(path) => BlockStream::frames(bytes, name).map(Some),
            Recognised::Pbf(..) => Ok(None),
            Recognised::Text(name, bytes, named) => self.text_stream(name, bytes, &named).map(Some),
        }
    }

    /// Tells what was passed over in a stream that has come to its end.
    pub fn end_stream(&self, stream: &BlockStream) {
        stream
            .warnings()
            .into_iter()
            .for_each(|warning| self.warn(warning));
    }
}
