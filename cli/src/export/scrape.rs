//! One scrape: which regions there are now, and what they say.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use shmstats::prometheus::{Exposition, Format, Options};
use shmstats::{Error, Inspector};

use crate::fail::{Failure, say};
use crate::find::{self, SUFFIX};

/// What stays from scrape to scrape.
#[derive(Debug)]
pub(super) struct Exporter {
    sources: Vec<PathBuf>,
    options: Options,
    /// Kept open: an inspector remembers the last sure totals of slots that are not settled.
    open: HashMap<PathBuf, Inspector>,
    /// What was said on stderr already.
    said: HashSet<String>,
}

/// A region to be read, and its `shm_region` label.
type Target = (PathBuf, Option<String>);

impl Exporter {
    pub(super) fn new(sources: Vec<PathBuf>, options: Options) -> Self {
        Exporter { sources, options, open: HashMap::new(), said: HashSet::new() }
    }

    /// Fails if a file or folder that was named is not there or cannot be read.
    pub(super) fn check_named(&self) -> Result<(), Failure> {
        for source in &self.sources {
            if source.is_dir() {
                find::candidates(source)?;
            } else {
                Inspector::open(source)?;
            }
        }
        Ok(())
    }

    /// The text of all regions that there are now.
    pub(super) fn scrape(&mut self, format: Format) -> Vec<u8> {
        let mut exposition = Exposition::new(self.options);
        let targets = self.targets(&mut exposition);
        self.open.retain(|path, inspector| {
            targets.iter().any(|(target, _)| target == path) && inspector.is_at_its_path()
        });
        for (path, label) in &targets {
            let read = match self.inspector(path) {
                // Not there yet, or gone since the folder was listed.
                Err(e) if e.io_kind() == Some(std::io::ErrorKind::NotFound) => Ok(()),
                Err(error) => Err(error),
                Ok(inspector) => exposition.add(inspector, label.as_deref()),
            };
            if let Err(error) = read {
                exposition.skip_region();
                self.say_once(format!("skipped: {error}"));
            }
        }
        let mut text = Vec::new();
        // Writing to memory cannot fail.
        let _ = exposition.write(format, &mut text);
        text
    }

    fn inspector(&mut self, path: &Path) -> Result<&mut Inspector, Error> {
        match self.open.entry(path.into()) {
            std::collections::hash_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            std::collections::hash_map::Entry::Vacant(entry) => {
                Ok(entry.insert(Inspector::open(path)?))
            }
        }
    }

    fn targets(&mut self, exposition: &mut Exposition) -> Vec<Target> {
        let mut targets: Vec<Target> = Vec::new();
        let mut faults = Vec::new();
        let alone = self.sources.len() == 1;
        for source in &self.sources {
            if !source.is_dir() {
                let label = (!alone).then(|| source.to_string_lossy().into_owned());
                targets.push((source.clone(), label));
                continue;
            }
            match find::candidates(source) {
                Ok(paths) => targets.extend(paths.into_iter().map(|path| {
                    let label =
                        if alone { short_name(&path) } else { path.to_string_lossy().into() };
                    (path, Some(label))
                })),
                Err(Failure::Bad(fault)) => faults.push(fault),
                Err(_) => {}
            }
        }
        for fault in faults {
            exposition.skip_region();
            self.say_once(format!("skipped: {fault}"));
        }
        let mut seen = HashSet::new();
        targets.retain(|(path, _)| seen.insert(path.clone()));
        targets
    }

    fn say_once(&mut self, message: String) {
        // A file that changes its fault all the time must not fill memory.
        if self.said.len() < 1000 && !self.said.contains(&message) {
            say(&message);
            self.said.insert(message);
        }
    }
}

/// The file's name without the ending.
fn short_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    name.strip_suffix(SUFFIX).unwrap_or(&name).into()
}
