//! Where the view's readings come from: a path, and whatever region is there.

use std::path::{Path, PathBuf};
use std::time::Instant;

use shmstats::Inspector;

use super::model::Model;
use crate::find::Opened;
use crate::report::Report;

#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    inspector: Option<Inspector>,
    began: Instant,
}

impl Source {
    pub(super) fn open(path: &Path) -> Result<Self, shmstats::Error> {
        let inspector = Some(Inspector::open(path)?);
        Ok(Source { path: path.into(), inspector, began: Instant::now() })
    }

    /// Reads once, from the region that is at the path now.
    pub(super) fn poll(&mut self, model: &mut Model) {
        if let Err(error) = self.read(model) {
            self.inspector = None;
            let missing = error.io_kind() == Some(std::io::ErrorKind::NotFound);
            model.lose(if missing { "gone".into() } else { error.to_string() });
        }
    }

    fn read(&mut self, model: &mut Model) -> Result<(), shmstats::Error> {
        let mut inspector = match self.inspector.take().filter(Inspector::is_at_its_path) {
            Some(inspector) => inspector,
            None => {
                let inspector = Inspector::open(&self.path)?;
                model.begin();
                inspector
            }
        };
        let observation = inspector.observe()?;
        let mut opened = Opened { inspector, observation };
        let report = Report::new(&mut opened);
        self.inspector = Some(opened.inspector);
        model.feed(self.began.elapsed(), report);
        Ok(())
    }
}
