//! A disk that fails on demand, for tests of what stands on it.
//!
//! Reads see every write at once. A crash keeps what was flushed and, of the writes since, any subset: whole, or torn at
//! sectors of 512 or 4096 bytes.

use super::memory::span;
use super::{Backend, Immediate, Queue};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

/// A misbehaviour at the `n`-th request of its kind, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Power fails at the `n`-th write, flush, resize or release: it and all later requests fail.
    Crash(u64),
    /// The `n`-th read fails, once.
    FailRead(u64),
    /// The `n`-th write fails, once, and leaves nothing.
    FailWrite(u64),
    /// The `n`-th flush fails, once; what it should have made durable is dropped from the next flush's duty, as
    /// operating systems do.
    FailFlush(u64),
    /// The `n`-th flush reports success and does nothing.
    SkipFlush(u64),
    /// The `n`-th write reports success and does nothing.
    LoseWrite(u64),
    /// The `n`-th write lands 16 blocks further, if the disk reaches so far, else 1 block before.
    Misdirect(u64),
    /// One bit of the `n`-th write is wrong.
    FlipWrite(u64),
    /// The disk refuses to hold more bytes than this.
    Capacity(u64),
}

/// How a crash treats writes that were not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tear {
    /// None survives.
    Nothing,
    /// All survive.
    Everything,
    /// Each survives or not, as the seed has it.
    Writes(u64),
    /// Each sector of the given size survives or not.
    Sectors(u64, usize),
}

#[derive(Clone, Default)]
struct State {
    seen: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<(usize, Vec<u8>)>,
    faults: Vec<Fault>,
    crashed: bool,
    reads: u64,
    writes: u64,
    flushes: u64,
    changes: u64,
}

/// A simulated disk in memory.
#[derive(Default)]
pub struct SimDisk {
    state: Mutex<State>,
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl SimDisk {
    /// An empty, healthy disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// A healthy disk that holds `bytes` durably.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self {
            state: Mutex::new(State {
                seen: bytes.clone(),
                durable: bytes,
                ..State::default()
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Adds a fault; requests are counted from this moment.
    pub fn inject(&self, fault: Fault) {
        let mut s = self.state();
        (s.reads, s.writes, s.flushes, s.changes) = (0, 0, 0, 0);
        s.faults.push(fault);
    }

    /// Writes, flushes, resizes and releases since the last [`inject`](Self::inject).
    pub fn changes(&self) -> u64 {
        self.state().changes
    }

    /// Reads, writes and flushes since the last [`inject`](Self::inject).
    pub fn counts(&self) -> (u64, u64, u64) {
        let s = self.state();
        (s.reads, s.writes, s.flushes)
    }

    /// Whether a [`Fault::Crash`] has struck.
    pub fn crashed(&self) -> bool {
        self.state().crashed
    }

    /// Bytes as reads see them.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.state().seen.clone()
    }

    /// The disk after power came back: healthy, with what survived.
    pub fn after_crash(&self, tear: Tear) -> SimDisk {
        let s = self.state();
        let mut bytes = s.durable.clone();
        let mut keep = |at: usize, part: &[u8]| {
            let end = at + part.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[at..end].copy_from_slice(part);
        };
        let mut seed = match tear {
            Tear::Writes(seed) | Tear::Sectors(seed, _) => seed,
            _ => 0,
        };
        for (at, data) in &s.pending {
            match tear {
                Tear::Nothing => {}
                Tear::Everything => keep(*at, data),
                Tear::Writes(_) => {
                    if random(&mut seed) & 1 == 1 {
                        keep(*at, data);
                    }
                }
                Tear::Sectors(_, size) => {
                    // Some writes whole, some not at all, some torn.
                    let fate = random(&mut seed) % 4;
                    for (i, sector) in data.chunks(size).enumerate() {
                        if fate == 0 || (fate > 1 && random(&mut seed) & 1 == 1) {
                            keep(*at + i * size, sector);
                        }
                    }
                }
            }
        }
        SimDisk::from_bytes(bytes)
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::other(format!("simulated fault: {what}"))
}

impl State {
    fn change(&mut self) -> io::Result<()> {
        let n = self.changes;
        self.changes += 1;
        if self.faults.contains(&Fault::Crash(n)) {
            self.crashed = true;
        }
        if self.crashed {
            Err(broken("power is off"))
        } else {
            Ok(())
        }
    }

    fn capacity(&self) -> u64 {
        let limits = self.faults.iter().filter_map(|f| {
            if let Fault::Capacity(c) = f {
                Some(*c)
            } else {
                None
            }
        });
        limits.min().unwrap_or(u64::MAX)
    }
}

impl Backend for SimDisk {
    fn describe(&self) -> String {
        "simulated disk".into()
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().seen.len() as u64)
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut s = self.state();
        s.change()?;
        if bytes > s.capacity() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        s.seen.resize(bytes as usize, 0);
        Ok(())
    }
    /// What was released reads as zeros, and may do so after a crash.
    fn release(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let mut s = self.state();
        s.change()?;
        let range = span(offset, bytes as usize, s.seen.len())?;
        s.seen[range.clone()].fill(0);
        s.pending.push((range.start, vec![0; range.len()]));
        Ok(())
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut s = self.state();
        let n = s.reads;
        s.reads += 1;
        if s.crashed || s.faults.contains(&Fault::FailRead(n)) {
            return Err(broken("read"));
        }
        let range = span(offset, buf.len(), s.seen.len())?;
        buf.copy_from_slice(&s.seen[range]);
        Ok(())
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let mut s = self.state();
        let n = s.writes;
        s.writes += 1;
        let range = span(offset, buf.len(), s.seen.len())?;
        if let Err(e) = s.change() {
            // The write that power fails under may have reached the medium in part.
            if s.faults.contains(&Fault::Crash(s.changes - 1)) {
                s.pending.push((range.start, buf.to_vec()));
            }
            return Err(e);
        }
        let has = |f: Fault| s.faults.contains(&f);
        if has(Fault::FailWrite(n)) {
            return Err(broken("write"));
        }
        if has(Fault::LoseWrite(n)) {
            return Ok(());
        }
        let (mut at, mut data) = (range.start, buf.to_vec());
        if has(Fault::Misdirect(n)) {
            let far = at + 16 * super::BLOCK;
            at = if far + data.len() <= s.seen.len() {
                far
            } else {
                at.saturating_sub(super::BLOCK)
            };
        }
        if has(Fault::FlipWrite(n)) {
            let middle = (n as usize * 7919) % data.len();
            data[middle] ^= 1 << (n % 8);
        }
        s.seen[at..at + data.len()].copy_from_slice(&data);
        s.pending.push((at, data));
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        let mut s = self.state();
        let n = s.flushes;
        s.flushes += 1;
        s.change()?;
        if s.faults.contains(&Fault::SkipFlush(n)) {
            return Ok(());
        }
        if s.faults.contains(&Fault::FailFlush(n)) {
            s.pending.clear();
            return Err(broken("flush"));
        }
        let s = &mut *s;
        s.durable.resize(s.seen.len(), 0);
        for (at, data) in s.pending.drain(..) {
            // A file cut after the write has no place for its tail.
            let end = (at + data.len()).min(s.durable.len());
            if at < end {
                s.durable[at..end].copy_from_slice(&data[..end - at]);
            }
        }
        Ok(())
    }
    fn queue(self: Arc<Self>, _: usize) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(Immediate::new(self)))
    }
}
