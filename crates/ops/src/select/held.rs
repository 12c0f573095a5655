//! What the first passes over an orderly file find, held for the last one.

use std::collections::HashMap;
use std::sync::Mutex;

use osmill_engine::{Blob, BlobEntry, Held, HoldStore, Job, KernelResult, TaskOutputs};

/// Part of the memory of a job that output which is held back may take, as a divisor.
const HELD_SHARE: u64 = 8;

/// What tasks have put out and hold back, by the numbers of their blobs.
#[derive(Debug)]
pub(crate) struct HeldBack {
    store: HoldStore,
    blobs: Mutex<HashMap<u64, Held>>,
}

impl HeldBack {
    /// Nothing so far.
    pub fn new(job: &Job) -> Self {
        HeldBack {
            store: HoldStore::new(job.options().memory / HELD_SHARE, &job.options().scratch),
            blobs: Mutex::default(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Held>> {
        self.blobs
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Where it is kept.
    pub fn store(&self) -> &HoldStore {
        &self.store
    }

    /// Holds what a blob's task has put out so far. Takes the place of what was held of the blob before.
    pub fn hold(&self, blob: &Blob, outs: &mut TaskOutputs<'_>) -> KernelResult {
        let held = outs.hold(&self.store)?;
        if !held.is_empty() {
            self.lock().insert(blob.entry().number, held);
        }
        Ok(())
    }

    /// Takes what is held of a blob.
    pub fn take(&self, blob: &Blob) -> Option<Held> {
        self.lock().remove(&blob.entry().number)
    }

    /// Whether something is held of a blob.
    pub fn has(&self, blob: &BlobEntry) -> bool {
        self.lock().contains_key(&blob.number)
    }
}
