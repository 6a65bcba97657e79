//! Tests of the server through its public interface.

mod disconnects;
mod grammars;
mod http;
mod identity;
mod limits;
mod messages;
mod metrics;
mod page;
mod reasoning;
mod record;
mod reference;
mod responses;
mod support;
mod tokens;
mod tools;
