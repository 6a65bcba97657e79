//! Progress of downloads and long runs, on standard error: a bar on a terminal, elsewhere a line
//! every half minute.

use std::cell::{Cell, RefCell};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use selfspec_hub::{FetchEvent, FetchProgress};
use selfspec_lab::training::{StopSignal, TrainingControl, TrainingNote};
use selfspec_lab::{LabNote, StageProgress};

use crate::output::Ui;
use crate::signals::Pausing;

/// Shows the hub's progress: bars on a terminal, warnings in any case.
pub(crate) struct HubProgress {
    ui: Ui,
    bar: RefCell<Option<ProgressBar>>,
}

impl HubProgress {
    pub(crate) fn new(ui: &Ui) -> Self {
        HubProgress { ui: *ui, bar: RefCell::new(None) }
    }

    fn clear(&self) {
        if let Some(bar) = self.bar.borrow_mut().take() {
            bar.finish_and_clear();
        }
    }
}

impl FetchProgress for HubProgress {
    fn event(&self, event: &FetchEvent<'_>) {
        match *event {
            FetchEvent::Source { .. } | FetchEvent::Waiting { .. } | FetchEvent::Discarded { .. } => {
                self.ui.note(&event.to_string());
            }
            FetchEvent::SourceFailed { .. } => {
                self.clear();
                self.ui.warn(&event.to_string());
            }
            FetchEvent::Start { verb, what, bytes } => {
                self.clear();
                if self.ui.progress() {
                    let bar = bar(
                        bytes,
                        "{prefix} {msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
                        "{prefix} {msg} {bytes} {bytes_per_sec}",
                    );
                    bar.set_prefix(verb);
                    bar.set_message(crate::output::shown(what).into_owned());
                    *self.bar.borrow_mut() = Some(bar);
                }
            }
            FetchEvent::Bytes(done) => {
                if let Some(bar) = &*self.bar.borrow() {
                    bar.set_position(done);
                }
            }
            FetchEvent::Finish => self.clear(),
        }
    }
}

/// Without a terminal, time between two lines about a long run.
const LINE_INTERVAL: Duration = Duration::from_secs(30);

/// Counts the steps of a long run.
pub(crate) struct Steps {
    ui: Ui,
    bar: ProgressBar,
    last_line: Cell<Instant>,
}

impl Steps {
    pub(crate) fn new(ui: &Ui, what: &str, steps: u64) -> Self {
        let bar = if ui.progress() {
            bar(Some(steps), "{msg} [{bar:30}] {pos}/{len} {eta}", "{msg} {pos}")
        } else {
            ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::hidden())
        };
        bar.set_message(crate::output::shown(what).into_owned());
        Steps { ui: *ui, bar, last_line: Cell::new(Instant::now()) }
    }

    pub(crate) fn step(&self) {
        self.bar.inc(1);
        if !self.ui.progress() && self.last_line.get().elapsed() >= LINE_INTERVAL {
            self.last_line.set(Instant::now());
            let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
            self.ui.note(&format!("{} {done}/{all}, {} s left", self.bar.message(), self.bar.eta().as_secs()));
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Shows the lab's progress: one bar at a time, and notes.
pub(crate) struct LabBars {
    ui: Ui,
    stage: Mutex<Option<Steps>>,
}

impl LabBars {
    pub(crate) fn new(ui: &Ui) -> Self {
        LabBars { ui: *ui, stage: Mutex::new(None) }
    }

    fn stage(&self) -> MutexGuard<'_, Option<Steps>> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StageProgress for LabBars {
    fn begin(&self, stage: &str, steps: u64) {
        *self.stage() = Some(Steps::new(&self.ui, stage, steps));
    }

    fn step(&self) {
        if let Some(steps) = &*self.stage() {
            steps.step();
        }
    }

    fn end(&self) {
        *self.stage() = None;
    }

    fn note(&self, note: &LabNote) {
        match note.is_detail() {
            true => self.ui.detail(&note.to_string()),
            false => self.ui.note(&note.to_string()),
        }
    }
}

impl TrainingControl for LabBars {
    fn training_note(&self, note: &TrainingNote) {
        match note.is_detail() {
            true => self.ui.detail(&note.to_string()),
            false => self.ui.note(&note.to_string()),
        }
    }

    fn stop_signal(&self) -> StopSignal<'_> {
        let pausing = Pausing::new();
        Box::new(move || pausing.interrupted())
    }
}

fn bar(len: Option<u64>, known: &str, unknown: &str) -> ProgressBar {
    let bar = match len {
        Some(len) => ProgressBar::new(len),
        None => ProgressBar::new_spinner(),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(if len.is_some() { known } else { unknown });
    bar.set_style(style.expect("the template is a constant of this program").progress_chars("=> "));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
