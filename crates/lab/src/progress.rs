//! How long work says how far it is.

/// Hears how far a measurement or a proof is. Stages follow one another; the next begins after the last has ended.
///
/// Every method has an empty default: `&()` hears nothing.
pub trait StageProgress: Sync {
    /// A stage of `steps` steps begins.
    fn begin(&self, stage: &str, steps: u64) {
        let _ = (stage, steps);
    }

    /// A step of the stage is done. Called from any thread.
    fn step(&self) {}

    /// The stage has ended, with all its steps done or not.
    fn end(&self) {}

    /// Something to know that is no error.
    fn note(&self, note: &LabNote) {
        let _ = note;
    }
}

impl StageProgress for () {}

/// Something to know about a measurement that is no error.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum LabNote {}

/// A stage under way; it ends when this is dropped.
pub(crate) struct Stage<'p>(&'p dyn StageProgress);

impl<'p> Stage<'p> {
    pub(crate) fn begin(progress: &'p dyn StageProgress, name: &str, steps: usize) -> Self {
        progress.begin(name, steps as u64);
        Stage(progress)
    }

    pub(crate) fn step(&self) {
        self.0.step();
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
