//! The configuration of HTTP clients.

use ureq::Agent;
use ureq::config::ConfigBuilder;
use ureq::typestate::AgentScope;

/// Most seconds until a connection stands.
pub(crate) const CONNECT_S: u64 = 10;

/// A client that talks to the server and nothing else: a redirected request would be sent twice,
/// and a proxy would be measured too. Refusals are responses.
pub(crate) fn agent_config() -> ConfigBuilder<AgentScope> {
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .user_agent(concat!("selfspec/", env!("CARGO_PKG_VERSION")))
}

/// The value of the header `Authorization` for a key.
pub(crate) fn bearer(key: &str) -> String {
    format!("Bearer {key}")
}
