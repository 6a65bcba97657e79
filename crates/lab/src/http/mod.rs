//! HTTP clients: their one configuration, and the one reader of event streams.

mod agent;
mod sse;

pub(crate) use agent::{CONNECT_S, agent_config, bearer};
pub(crate) use sse::SseDecoder;
