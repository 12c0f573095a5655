//! How work runs.
//!
//! Every command is a list of passes over blobs, and nothing else moves data:
//!
//! 1. [`Input`] opens a file; its [`Plan`] lists the data blobs and what is known of each from the headers.
//! 2. A [`Pass`] runs a kernel over a selection of blobs on all threads. A worker takes the next blob and
//!    brings it from reading to writing on its own, with buffers of its own. [`Blob`] reads and decompresses
//!    only when the kernel asks.
//! 3. A [`Sink`] puts what the workers produce in order, gathers thin blocks into full ones, copies untouched
//!    ranges without reading them, and gives the file its name at the end.
//!
//! [`Job`] carries threads, memory, scratch space, progress and the account of the work ([`Summary`]). Work
//! over several inputs at once, cut by ranges of ids, runs as [`Job::tasks`].

mod error;
mod file;
mod ids;
mod job;
mod output;
mod plan;
mod progress;
mod summary;

pub use error::{Error, Fault, KernelResult, Malformed, Result};
pub use file::{ReadBuffer, ReadFile, reserve_open_files};
pub use ids::{FrozenIds, IdRuns, IdSet, IdSets};
pub use job::{Blob, Job, JobOptions, Pass, format_duration, output_header};
pub use osmill_text::format::Sniffed;
pub use output::{Held, HoldStore, OutputOptions, Sink, TaskOutput, TaskOutputs};
pub use plan::{BlobEntry, FrameStream, Input, Plan, merge_headers};
pub use summary::{Allocations, Counts, PhaseSummary, Summary, peak_memory};
