//! The engine's events, from the thread that waits for them to the task that answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use selfspec_engine::{Canceller, Event, Generation};
use tokio::sync::mpsc;

use crate::watch::Watch;

/// Events under way between the two; a client that does not read holds up its own events only.
const UNDER_WAY: usize = 64;

/// What the requests that have been taken on come to, against what the server takes.
#[derive(Debug)]
pub(crate) struct Load {
    requests: AtomicUsize,
    tokens: AtomicUsize, // of their prompts
    most_requests: usize,
    most_tokens: usize,
}

impl Load {
    pub(crate) fn new(most_requests: usize, most_tokens: usize) -> Arc<Self> {
        Arc::new(Load { requests: AtomicUsize::new(0), tokens: AtomicUsize::new(0), most_requests, most_tokens })
    }

    /// Takes on a request of so many choices and prompt tokens in all; why not, if it is too much. One alone is never too much.
    pub(crate) fn take(self: &Arc<Self>, choices: usize, tokens: usize) -> Result<Share, String> {
        let share = Share { load: self.clone(), choices, tokens };
        let requests = self.requests.fetch_add(choices, Ordering::SeqCst);
        let waiting = self.tokens.fetch_add(tokens, Ordering::SeqCst);
        if requests > 0 && requests + choices > self.most_requests {
            return Err(format!("{requests} requests are under way, and this server takes {}", self.most_requests));
        }
        if waiting > 0 && waiting + tokens > self.most_tokens {
            return Err(format!("{waiting} prompt tokens are under way, and this server takes {}", self.most_tokens));
        }
        Ok(share)
    }

    /// Requests that have been taken on and are not over.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// A request's part of the load, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    load: Arc<Load>,
    choices: usize,
    tokens: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.load.requests.fetch_sub(self.choices, Ordering::SeqCst);
        self.load.tokens.fetch_sub(self.tokens, Ordering::SeqCst);
    }
}

/// The events of a request's choices, each with the choice's index. Dropping them cancels what is under way.
#[derive(Debug)]
pub(crate) struct Events {
    receiver: mpsc::Receiver<(usize, Event)>,
    cancellers: Vec<Canceller>,
    _share: Share,
}

impl Events {
    /// Follows the generations, each on a thread of the blocking pool.
    pub(crate) fn follow(generations: Vec<Generation>, share: Share, watch: &Arc<Watch>) -> Self {
        let (sender, receiver) = mpsc::channel(UNDER_WAY);
        let cancellers = generations.iter().map(Generation::canceller).collect();
        for (index, generation) in generations.into_iter().enumerate() {
            let (sender, watch) = (sender.clone(), watch.clone());
            tokio::task::spawn_blocking(move || {
                let mut listens = true; // what nobody listens to any more is cancelled, and followed to its end
                for event in generation {
                    watch.note(index, &event);
                    listens = listens && sender.blocking_send((index, event)).is_ok();
                }
            });
        }
        Events { receiver, cancellers, _share: share }
    }

    /// The next event; `None` when all choices are over.
    pub(crate) async fn next(&mut self) -> Option<(usize, Event)> {
        self.receiver.recv().await
    }

    /// An event that is there already.
    pub(crate) fn ready(&mut self) -> Option<(usize, Event)> {
        self.receiver.try_recv().ok()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.cancellers.iter().for_each(Canceller::cancel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_bounded_and_given_back() {
        let load = Load::new(2, 100);
        let big = load.take(5, 1000).expect("one alone is never too much");
        assert!(load.take(1, 1).expect_err("full").contains("5 requests are under way"));
        drop(big);
        let one = load.take(1, 90).expect("room");
        assert!(load.take(1, 20).expect_err("too many tokens").contains("90 prompt tokens"));
        let two = load.take(1, 10).expect("room");
        assert_eq!(load.requests(), 2);
        drop((one, two));
        assert_eq!((load.requests(), load.tokens.load(Ordering::SeqCst)), (0, 0));
    }
}
