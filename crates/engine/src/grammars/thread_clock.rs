//! The processor time of a thread, read by another one.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// One unit of `/proc/PID/stat`: Linux shows 100 a second to programs, whatever its own clock does.
const TICK: Duration = Duration::from_millis(10);

/// Measures how much a thread computes from now on.
#[derive(Debug)]
pub(crate) struct ThreadClock {
    stat: Option<PathBuf>, // none where the system does not tell
    before: Duration,
    started: Instant,
}

impl ThreadClock {
    /// The clock of the calling thread.
    pub(crate) fn of_current_thread() -> Self {
        let thread = std::fs::read_link("/proc/thread-self").ok();
        let stat = thread.map(|thread| Path::new("/proc").join(thread).join("stat"));
        let before = stat.as_deref().and_then(processor_time);
        ThreadClock {
            stat: stat.filter(|_| before.is_some()),
            before: before.unwrap_or_default(),
            started: Instant::now(),
        }
    }

    /// The processor time since the clock was made. Elapsed time where the system does not tell, or
    /// the thread is gone.
    pub(crate) fn used(&self) -> Duration {
        let now = self.stat.as_deref().and_then(processor_time);
        now.map_or_else(|| self.started.elapsed(), |now| now.saturating_sub(self.before))
    }
}

/// User and system time of a thread (proc(5), `/proc/PID/stat`, fields 14 and 15).
fn processor_time(stat: &Path) -> Option<Duration> {
    let text = std::fs::read_to_string(stat).ok()?;
    // The name, field 2, is in brackets and may hold spaces.
    let (_, fields) = text.rsplit_once(')')?;
    let ticks = |field: &str| field.parse::<u32>().ok();
    let mut fields = fields.split_whitespace().skip(11);
    Some(TICK * (ticks(fields.next()?)? + ticks(fields.next()?)?))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn only_work_of_the_thread_counts() {
        let clock = ThreadClock::of_current_thread();
        std::thread::sleep(Duration::from_millis(60));
        assert!(clock.used() < Duration::from_millis(60), "{:?}", clock.used());
        let mut n = 1u64;
        while clock.used() < Duration::from_millis(30) {
            n = std::hint::black_box(n.wrapping_mul(3));
        }
        let idle = std::thread::spawn(ThreadClock::of_current_thread).join().expect("no panic");
        assert!(clock.used() >= Duration::from_millis(30) && idle.stat.is_some());
    }
}
