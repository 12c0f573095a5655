//! What the planner knows about the device, and how to find out.

use crate::backend::{AlignedBuf, BLOCK, Backend, Kind, Request};
use crate::core::Core;
use crate::error::Result;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rates of a device under one program.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Device {
    /// Random reads of 4 KiB a second at full queue depth.
    pub iops: f64,
    /// Sequential read, bytes a second.
    pub read_rate: f64,
    /// Sequential write, bytes a second.
    pub write_rate: f64,
}

impl Default for Device {
    /// A virtual disk of a small cloud machine.
    fn default() -> Self {
        Self {
            iops: 90e3,
            read_rate: 1.2e9,
            write_rate: 2.5e9,
        }
    }
}

impl Device {
    /// Share of the extents under one directory leaf from which on rewriting all of them in key order is the better deal:
    /// no dearer than `1 / iops` each, and at most a third, so that key order on disk is restored as changes spread.
    pub fn regroup_share(&self) -> f64 {
        let stream = BLOCK as f64 * (1.0 / self.read_rate + 1.0 / self.write_rate);
        let single = 1.0 / self.iops + BLOCK as f64 / self.write_rate;
        (stream / single).clamp(0.125, 1.0 / 3.0)
    }

    /// Expected seconds of a batch of `keys` uniformly spread operations on `extents` extents: the lesser of touching extents one by one
    /// and streaming through all of them.
    pub fn batch_seconds(&self, extents: u64, keys: u64) -> f64 {
        let e = extents.max(1) as f64;
        let touched = e * (1.0 - (-(keys as f64) / e).exp());
        let stream = e * BLOCK as f64 * (1.0 / self.read_rate + 1.0 / self.write_rate);
        (touched / self.iops).min(stream)
    }

    /// Measures the three rates on the file of a store, 10 ms each: reads of blocks in use, writes to a free run.
    pub(crate) fn calibrate(core: &mut Core) -> Result<Self> {
        const SPAN: Duration = Duration::from_millis(10);
        const RUN: u32 = 64;
        let store = core.store.clone();
        let io = || store.io("measure", 0);
        let free = core.allocate(RUN, RUN)?;
        let (backend, run_bytes) = (&store.backend, f64::from(RUN) * BLOCK as f64);
        let mut seed = 1u64;
        let mut draw = |n: u32| {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (((seed >> 32) * u64::from(n)) >> 32) as u32
        };
        let total = core.file_blocks;
        let space = &core.space;
        let random = rate(backend, Kind::Read, 1, store.depth, SPAN, || {
            // Parts of the file that were never written would be read without the device.
            let used = (0..64).map(|_| draw(total)).find(|&b| space.is_used(b));
            u64::from(used.unwrap_or(0)) * BLOCK as u64
        })
        .map_err(io())?;
        let mut at = draw(total / RUN) * RUN;
        let read = rate(backend, Kind::Read, RUN as usize, 4, SPAN, || {
            // Free stretches may have no storage, and would be read without the device as well.
            for _ in 0..64 {
                at = if at + 2 * RUN <= total { at + RUN } else { 0 };
                if space.is_used(at) {
                    break;
                }
            }
            u64::from(at) * BLOCK as u64
        })
        .map_err(io())?;
        let place = u64::from(free.0) * BLOCK as u64;
        let write = rate(backend, Kind::Write, RUN as usize, 2, SPAN, || place);
        core.space.free(free);
        Ok(Self {
            iops: random,
            read_rate: read * run_bytes,
            write_rate: write.map_err(io())? * run_bytes,
        })
    }

    /// Measures the three rates on a back end, which is overwritten and grown to `bytes` (64 MiB or more make sense).
    /// Takes about `3 * span`.
    ///
    /// # Errors
    /// Those of the back end.
    pub fn measure(backend: &Arc<dyn Backend>, bytes: u64, depth: usize, span: Duration) -> io::Result<Self> {
        const RUN: usize = 256;
        let run_bytes = (RUN * BLOCK) as u64;
        let runs = (bytes / run_bytes).max(4);
        backend.set_len(runs * run_bytes)?;
        let mut content = AlignedBuf::new(RUN);
        content
            .iter_mut()
            .enumerate()
            .for_each(|(i, b)| *b = ((i * 31) >> 3) as u8);
        for i in 0..runs {
            backend.write_at(i * run_bytes, &content)?;
        }
        backend.flush()?;
        let mut i = 0;
        let mut next_run = move || {
            i += 1;
            (i % runs) * run_bytes
        };
        let mut seed = 1u64;
        let blocks = runs * RUN as u64;
        let next_block = move || {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (seed >> 33) % blocks * BLOCK as u64
        };
        let write = rate(backend, Kind::Write, RUN, 4, span, &mut next_run)?;
        backend.flush()?;
        let read = rate(backend, Kind::Read, RUN, 8, span, &mut next_run)?;
        let random = rate(backend, Kind::Read, 1, depth, span, next_block)?;
        Ok(Self {
            iops: random,
            read_rate: read * run_bytes as f64,
            write_rate: write * run_bytes as f64,
        })
    }
}

/// Requests a second of one kind and size.
fn rate(
    backend: &Arc<dyn Backend>,
    kind: Kind,
    blocks: usize,
    depth: usize,
    span: Duration,
    mut offset: impl FnMut() -> u64,
) -> io::Result<f64> {
    let mut queue = backend.clone().queue(depth)?;
    let start = Instant::now();
    let mut done = 0u64;
    for tag in 0..depth as u64 {
        let buf = AlignedBuf::new(blocks);
        queue.submit(Request {
            tag,
            kind,
            offset: offset(),
            len: blocks * BLOCK,
            buf,
        })?;
    }
    while let Some(completion) = queue.complete(true)? {
        completion.result?;
        done += 1;
        if start.elapsed() < span {
            let (tag, buf) = (completion.tag, completion.buf);
            queue.submit(Request {
                tag,
                kind,
                offset: offset(),
                len: blocks * BLOCK,
                buf,
            })?;
        }
    }
    Ok(done as f64 / start.elapsed().as_secs_f64())
}
