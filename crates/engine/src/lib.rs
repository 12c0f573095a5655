//! How work runs.
//!
//! Every command is a list of passes over blobs, and nothing else moves data:
//!
//! 1. [`Job::open`] opens a file of any format as an [`Input`]; its [`Plan`] lists the data blobs and what is
//!    known of each from the headers. [`Job::stream`] does without a plan, for a single pass.
//! 2. A [`Pass`] runs a kernel over a selection of blobs on all threads. A worker takes the next blob and
//!    brings it from reading to writing on its own, with buffers of its own. [`Blob`] reads and decompresses
//!    only when the kernel asks.
//! 3. A [`Sink`] puts what the workers produce in order, gathers thin blocks into full ones, copies untouched
//!    ranges without reading them, and gives the file its name at the end. Its [`OutputOptions`] have the
//!    format; a command hands over elements and blocks and does not care.
//!
//! [`Job`] carries threads, memory, scratch space, progress and the account of the work ([`Summary`]). Work
//! over several inputs at once, cut by ranges of ids, runs as [`Job::tasks`].

mod encode;
mod error;
mod file;
mod held;
mod ids;
mod input;
mod job;
mod output;
mod plan;
mod pool;
mod progress;
mod sidecar;
mod stream;
mod summary;
mod task;

pub use error::{Error, Fault, KernelResult, Malformed, Result};
pub use file::{ReadBuffer, ReadFile};
pub use held::{Held, HoldStore};
pub use ids::{FrozenIds, IdRuns, IdSet, IdSets, Ranks};
pub use input::Input;
pub use job::{Blob, Job, JobOptions, Pass, format_duration, output_header};
pub use osmill_text::format::{FormatSpec, Sniffed, Syntax, TextCompression};
pub use output::{OutputOptions, Sink};
pub use plan::{BlobEntry, Origin, Plan, merge_headers};
pub use pool::OutputFiles;
pub use sidecar::sidecar_path;
pub use stream::{BlockStream, TextFormat};
pub use summary::{Allocations, Counts, PhaseSummary, Summary, peak_memory};
pub use task::{TaskOutput, TaskOutputs};
