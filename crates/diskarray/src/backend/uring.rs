//! Requests in flight by io_uring.
#![allow(unsafe_code)]

use super::{Completion, Kind, Queue, Request};
use io_uring::{IoUring, opcode, types};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Submissions gathered before the kernel is entered.
const GATHER: usize = 8;

pub(super) struct Uring {
    ring: IoUring,
    file: Arc<File>,
    slots: Vec<Option<Request>>,
    free: Vec<usize>,
    /// Requests beyond the depth, in order.
    waiting: VecDeque<Request>,
    pushed: usize,
    started: usize,
}

impl Uring {
    pub fn new(file: Arc<File>, depth: usize) -> io::Result<Self> {
        let depth = depth.clamp(1, 1024);
        let ring = IoUring::builder()
            .setup_clamp()
            .build((depth as u32).next_power_of_two())?;
        let slots = (0..depth).map(|_| None).collect();
        let waiting = VecDeque::new();
        Ok(Self {
            ring,
            file,
            slots,
            free: (0..depth).collect(),
            waiting,
            pushed: 0,
            started: 0,
        })
    }

    /// Whether a read really goes through: containers forbid the calls, some devices fail only then.
    pub fn probe(file: Arc<File>) -> io::Result<()> {
        let mut queue = Self::new(file, 4)?;
        let buf = super::AlignedBuf::new(1);
        queue.submit(Request {
            tag: 1,
            kind: Kind::Read,
            offset: 0,
            len: buf.len(),
            buf,
        })?;
        match queue.complete(true)? {
            Some(Completion { result: Err(e), .. }) if e.kind() != io::ErrorKind::UnexpectedEof => Err(e),
            _ => Ok(()),
        }
    }

    fn start(&mut self, slot: usize, mut request: Request) -> io::Result<()> {
        let fd = types::Fd(self.file.as_raw_fd());
        let (ptr, len) = (request.buf.as_mut_ptr(), request.len as u32);
        let entry = match request.kind {
            Kind::Read => opcode::Read::new(fd, ptr, len).offset(request.offset).build(),
            Kind::Write => opcode::Write::new(fd, ptr, len).offset(request.offset).build(),
        };
        self.slots[slot] = Some(request);
        // SAFETY: the entry points into a buffer owned by `slots[slot]`, which stays there until the completion of
        // this slot is taken; `drop` waits for all of them. The file is kept open by `self.file`.
        unsafe { self.ring.submission().push(&entry.user_data(slot as u64)) }
            .map_err(|_| io::Error::other("submission queue is full"))?;
        self.pushed += 1;
        self.started += 1;
        if self.pushed >= GATHER {
            self.enter(0)?;
        }
        Ok(())
    }

    fn enter(&mut self, want: usize) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(want) {
                Ok(_) => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // The kernel is out of request memory: completions have to be taken first.
                Err(e) if matches!(e.raw_os_error(), Some(11 | 16)) && self.started > self.pushed => {
                    return Ok(());
                }
                Err(e) => return Err(e),
            }
        }
        self.pushed = 0;
        Ok(())
    }

    fn take(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().next()?;
        let slot = entry.user_data() as usize;
        let mut request = self.slots[slot].take()?;
        self.free.push(slot);
        self.started -= 1;
        let result = match usize::try_from(entry.result()) {
            Err(_) => Err(io::Error::from_raw_os_error(-entry.result())),
            Ok(n) if n == request.len => Ok(()),
            // A short transfer: the rest by ordinary calls, which also tell the end of the file.
            Ok(n) => {
                let rest = &mut request.buf[n..request.len];
                match request.kind {
                    Kind::Read => self.file.read_exact_at(rest, request.offset + n as u64),
                    Kind::Write => self.file.write_all_at(rest, request.offset + n as u64),
                }
            }
        };
        Some(Completion {
            tag: request.tag,
            result,
            buf: request.buf,
        })
    }
}

impl Queue for Uring {
    fn submit(&mut self, request: Request) -> io::Result<()> {
        match self.free.pop() {
            Some(slot) => self.start(slot, request),
            None => {
                self.waiting.push_back(request);
                Ok(())
            }
        }
    }

    fn complete(&mut self, wait: bool) -> io::Result<Option<Completion>> {
        loop {
            if let Some(done) = self.take() {
                if let Some(request) = self.waiting.pop_front() {
                    let slot = self.free.pop().expect("a slot was freed just now");
                    self.start(slot, request)?;
                }
                return Ok(Some(done));
            }
            if self.started == 0 || !wait {
                if self.pushed > 0 {
                    self.enter(0)?;
                }
                return Ok(None);
            }
            self.enter(1)?;
        }
    }

    fn in_flight(&self) -> usize {
        self.started + self.waiting.len()
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        self.waiting.clear();
        while self.started > 0 {
            if self.take().is_none() && self.enter(1).is_err() {
                // The kernel may still write into these buffers, so they must never be freed.
                self.slots.drain(..).flatten().for_each(std::mem::forget);
                return;
            }
        }
    }
}
