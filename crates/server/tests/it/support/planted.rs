//! An engine without a model, whose steps wait or panic when the test says so.

use std::sync::Arc;

use selfspec_engine::{Engine, EngineOptions};
use selfspec_testkit::fake_target::{FakeOptions, fake_target};
use selfspec_testkit::faulty_backend::{Faults, FaultyBackend};

/// An engine on such a backend, without a tokenizer: prompts are token ids below 40.
pub(crate) fn engine(max_batch: usize) -> (Arc<Engine>, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    let inner = fake_target(FakeOptions { context: 2048, pages: 4096, ..FakeOptions::default() });
    let backend = Box::new(FaultyBackend::new(inner, &faults));
    let options = EngineOptions { max_batch, prefix_cache: true, ..EngineOptions::default() };
    (Arc::new(Engine::with_backend(backend, None, None, &options).expect("a thread")), faults)
}
