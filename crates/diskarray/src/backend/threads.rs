//! Requests in flight by a pool of threads that block in pread and pwrite.

use super::{Backend, Completion, Queue, Request, run};
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

struct Shared {
    jobs: Mutex<Jobs>,
    wake: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Request>,
    closed: bool,
}

impl Shared {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

/// A queue with its own threads; they end with it.
pub(super) struct Threads {
    shared: Arc<Shared>,
    done: Receiver<Completion>,
    workers: Vec<std::thread::JoinHandle<()>>,
    in_flight: usize,
}

/// Stack of a worker: it calls pread and nothing else.
const STACK: usize = 64 << 10;

impl Threads {
    pub fn new<B: Backend>(backend: Arc<B>, threads: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            jobs: Mutex::default(),
            wake: Condvar::new(),
        });
        let (sender, done) = channel();
        let mut queue = Self {
            shared,
            done,
            workers: Vec::with_capacity(threads),
            in_flight: 0,
        };
        for _ in 0..threads {
            let (shared, backend, sender) = (queue.shared.clone(), backend.clone(), sender.clone());
            let worker = std::thread::Builder::new()
                .name("diskarray-io".into())
                .stack_size(STACK);
            queue
                .workers
                .push(worker.spawn(move || work(&shared, &*backend, &sender))?);
        }
        Ok(queue)
    }
}

fn work<B: Backend>(shared: &Shared, backend: &B, done: &Sender<Completion>) {
    loop {
        let mut jobs = shared.jobs();
        let request = loop {
            if let Some(request) = jobs.waiting.pop_front() {
                break request;
            }
            if jobs.closed {
                return;
            }
            jobs = shared
                .wake
                .wait(jobs)
                .unwrap_or_else(|poison| poison.into_inner());
        };
        drop(jobs);
        if done.send(run(backend, request)).is_err() {
            return;
        }
    }
}

impl Queue for Threads {
    fn submit(&mut self, request: Request) -> io::Result<()> {
        self.shared.jobs().waiting.push_back(request);
        self.shared.wake.notify_one();
        self.in_flight += 1;
        Ok(())
    }
    fn complete(&mut self, wait: bool) -> io::Result<Option<Completion>> {
        if self.in_flight == 0 {
            return Ok(None);
        }
        let gone = || io::Error::other("an I/O thread ended");
        let done = if wait {
            self.done.recv().map_err(|_| gone())?
        } else {
            match self.done.try_recv() {
                Ok(done) => done,
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Disconnected) => return Err(gone()),
            }
        };
        self.in_flight -= 1;
        Ok(Some(done))
    }
    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.jobs().closed = true;
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // A worker that panicked has nothing more to give back.
            let _ = worker.join();
        }
    }
}
