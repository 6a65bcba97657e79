//! The speculation policy: whether to draft, with which drafter, and how far.
//!
//! Each file is one noun. The policy returns data; `crate::words` turns it into sentences.
//!
//! With a_i the acceptance rate of the i-th draft of a round, given that the drafts before it were
//! accepted, c the cost of a draft step and b(m) that of a pass of m rows, both over a plain step,
//! a round of k drafts is expected to make decoding faster by
//!
//! ```text
//! (1 + a_1 + a_1 a_2 + ... + a_1 .. a_k) / (c k + b(k + 1))
//! ```
//!
//! (Leviathan et al. 2023, theorem 3.8, with b measured and acceptance by place in the round.)

pub(crate) mod acceptance;
pub(crate) mod choice;
pub(crate) mod confidence;
pub(crate) mod cost;
pub(crate) mod draft_prices;
pub(crate) mod drafter_off;
pub(crate) mod drafter_policy;
pub(crate) mod exit_head_use;
pub(crate) mod loss_budget;
pub(crate) mod offer_record;
pub(crate) mod plain_timing;
pub(crate) mod round_reason;
pub(crate) mod speculation_policy;
pub(crate) mod stop_rule;
pub(crate) mod window_draft_len;
