//! Which elements of a file are wanted, by their places: for where ids do not fit in memory.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use osmill_engine::{BlobEntry, Error, IdSet, Input, Job, Plan, Result};
use osmill_model::{Kind, KindSet};

use super::{Wanted, blobs_of, for_each_in, kind_of};

/// A bit for each element of the blobs with wanted ones of a kind, in a file without a name in the scratch folder: for all
/// nodes of the planet 1.3 GB.
#[derive(Debug)]
pub(super) struct Marks {
    kind: Kind,
    file: File,
    folder: PathBuf,
    end: AtomicU64,
    /// By the numbers of blobs that may have elements of the kind, ascending: which bytes of the file are theirs.
    blobs: Vec<(u64, OnceLock<Range<u64>>)>,
}

/// Whether a bit is set.
#[inline]
pub(super) fn is_set(bits: &[u64], number: usize) -> bool {
    bits.get(number / 64)
        .is_some_and(|word| word >> (number % 64) & 1 == 1)
}

impl Marks {
    /// None are set.
    pub fn new(job: &Job, plan: &Plan, kind: Kind) -> Result<Self> {
        let folder = job.options().scratch.clone();
        let blobs = blobs_of(plan, KindSet::from(kind), |_| true);
        Ok(Marks {
            kind,
            file: tempfile::tempfile_in(&folder).map_err(|e| Error::io("create a file in", &folder, e))?,
            folder,
            end: AtomicU64::new(0),
            blobs: blobs.iter().map(|blob| (blob.number, OnceLock::new())).collect(),
        })
    }

    /// Marks the wanted elements of the file; which they are.
    pub fn mark(&self, job: &Job, (input, plan): (&Input, &Plan), wanted: &Wanted) -> Result<IdSet> {
        let found = IdSet::new();
        let blobs = blobs_of(plan, KindSet::from(self.kind), |record| wanted.may_touch(record));
        job.pass("mark", input.file(), &blobs).scan(
            <(Vec<u64>, Vec<i64>)>::default,
            |(bits, ids), blob| {
                *bits = self.of(blob.entry())?;
                let (mut number, mut any) = (0, false);
                for_each_in(blob, ids, |_, item, _, id| {
                    if number / 64 == bits.len() {
                        bits.push(0);
                    }
                    if kind_of(item) == self.kind && wanted.has(self.kind, id) {
                        bits[number / 64] |= 1 << (number % 64);
                        found.insert(id);
                        any = true;
                    }
                    number += 1;
                    Ok(())
                })?;
                if any {
                    self.set(blob.entry(), bits)?;
                }
                Ok(())
            },
        )?;
        Ok(found)
    }

    fn place(&self, blob: &BlobEntry) -> Option<&OnceLock<Range<u64>>> {
        let at = self
            .blobs
            .binary_search_by_key(&blob.number, |(number, _)| *number);
        Some(&self.blobs.get(at.ok()?)?.1)
    }

    /// The bits of a blob; none if none is set.
    pub fn of(&self, blob: &BlobEntry) -> Result<Vec<u64>> {
        let Some(place) = self.place(blob).and_then(OnceLock::get) else {
            return Ok(Vec::new());
        };
        let mut bytes = vec![0; (place.end - place.start) as usize];
        self.file
            .read_exact_at(&mut bytes, place.start)
            .map_err(|e| Error::io("read a file in", &self.folder, e))?;
        let (words, _) = bytes.as_chunks();
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    fn set(&self, blob: &BlobEntry, bits: &[u64]) -> Result<()> {
        let Some(place) = self.place(blob) else {
            return Ok(());
        };
        let bytes: Vec<u8> = bits.iter().flat_map(|word| word.to_le_bytes()).collect();
        let size = bytes.len() as u64;
        let start = place
            .get_or_init(|| {
                let start = self.end.fetch_add(size, Relaxed);
                start..start + size
            })
            .start;
        self.file
            .write_all_at(&bytes, start)
            .map_err(|e| Error::write(&self.folder, start, e))
    }
}
