//! The files of many outputs.
//!
//! A process may have only so many files open at once. For more outputs than that, [`OutputFiles`] keeps some of
//! the files open, those that were used last, and opens the others again when they are written to. Such files need a
//! name while they are written: a temporary one, which a killed process leaves behind. So that is done only where the
//! limit cannot be raised far enough.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files beside those of outputs that are open: inputs, standard streams, what libraries open.
const OTHERS: u64 = 64;

/// How the files of many outputs are kept open.
#[derive(Debug, Clone, Default)]
pub struct OutputFiles(Option<Arc<Pool>>);

#[derive(Debug)]
struct Pool {
    /// Files that stay open.
    most: usize,
    state: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// By number of the file: the file, and when it was used last.
    files: HashMap<u64, (Arc<File>, u64)>,
    uses: u64,
    numbers: u64,
}

/// A file of an output.
#[derive(Debug, Clone)]
pub(crate) enum OutputFile {
    /// It is open all the time.
    Open(Arc<File>),
    /// It may be closed and opened again.
    Pooled(Arc<PooledFile>),
}

/// A file of a pool.
#[derive(Debug)]
pub(crate) struct PooledFile {
    pool: Arc<Pool>,
    number: u64,
    path: PathBuf,
}

impl OutputFiles {
    /// For so many outputs at once. The limit of open files is raised if that is needed and the system lets it;
    /// otherwise at most half of what it allows is used.
    pub fn for_outputs(count: usize) -> OutputFiles {
        let need = count as u64 + OTHERS;
        let limit = getrlimit(Resource::Nofile);
        if limit.current.is_none_or(|current| current >= need) {
            return OutputFiles(None);
        }
        let allowed = limit.maximum.unwrap_or(need);
        let raised = Rlimit {
            current: Some(need.min(allowed)),
            maximum: limit.maximum,
        };
        let raised = setrlimit(Resource::Nofile, raised).is_ok();
        if raised && allowed >= need {
            return OutputFiles(None);
        }
        let now = getrlimit(Resource::Nofile).current.unwrap_or(need);
        OutputFiles::keeping((now / 2) as usize)
    }

    /// Keeps so many files open, at least one.
    fn keeping(most: usize) -> OutputFiles {
        OutputFiles(Some(Arc::new(Pool {
            most: most.max(1),
            state: Mutex::default(),
        })))
    }

    /// Whether files may be closed while they are written, and so need a name.
    pub(crate) fn need_names(&self) -> bool {
        self.0.is_some()
    }

    /// Takes charge of a new file that has this name.
    pub(crate) fn add(&self, file: File, path: PathBuf) -> OutputFile {
        let file = Arc::new(file);
        let Some(pool) = &self.0 else {
            return OutputFile::Open(file);
        };
        let mut open = pool.lock();
        open.numbers += 1;
        let number = open.numbers;
        open.keep(number, file, pool.most);
        drop(open);
        OutputFile::Pooled(Arc::new(PooledFile {
            pool: pool.clone(),
            number,
            path,
        }))
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Adds a file; lets go of the one that has not been used for the longest time if there are too many. O(files
    /// that are open).
    fn keep(&mut self, number: u64, file: Arc<File>, most: usize) {
        if self.files.len() >= most {
            let oldest = self.files.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(number) = oldest.map(|(number, _)| *number) {
                self.files.remove(&number);
            }
        }
        self.uses += 1;
        self.files.insert(number, (file, self.uses));
    }

    fn find(&mut self, number: u64) -> Option<Arc<File>> {
        self.uses += 1;
        let (file, used) = self.files.get_mut(&number)?;
        *used = self.uses;
        Some(file.clone())
    }
}

impl OutputFile {
    /// The open file. It stays open for as long as it is held.
    pub fn get(&self) -> io::Result<Arc<File>> {
        match self {
            OutputFile::Open(file) => Ok(file.clone()),
            OutputFile::Pooled(pooled) => {
                let PooledFile { pool, number, path } = &**pooled;
                let mut open = pool.lock();
                if let Some(file) = open.find(*number) {
                    return Ok(file);
                }
                let file = Arc::new(OpenOptions::new().read(true).write(true).open(path)?);
                open.keep(*number, file.clone(), pool.most);
                Ok(file)
            }
        }
    }
}

impl Drop for PooledFile {
    fn drop(&mut self) {
        self.pool.lock().files.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn files_are_opened_again(most in 0usize..4, writes in proptest::collection::vec(0usize..6, 0..60)) {
            let folder = tempfile::tempdir().unwrap();
            let path = |at: usize| folder.path().join(at.to_string());
            let pool = OutputFiles::keeping(most);
            let files: Vec<OutputFile> = (0..6).map(|at| pool.add(File::create(path(at)).unwrap(), path(at))).collect();
            let mut expected = vec![Vec::new(); 6];
            for (i, &at) in writes.iter().enumerate() {
                files[at].get().unwrap().write_all_at(&[i as u8], expected[at].len() as u64).unwrap();
                expected[at].push(i as u8);
                let open = pool.0.as_ref().unwrap().lock().files.len();
                prop_assert!(open <= most.max(1));
            }
            for (at, bytes) in expected.iter().enumerate() {
                prop_assert_eq!(&std::fs::read(path(at)).unwrap(), bytes);
            }
        }
    }
}
