//! Where the hub looks for models, and what it may do.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::HubError;

/// Where the hub looks, and what it may do.
#[derive(Debug, Clone)]
pub struct HubOptions {
    /// Folder of the cache: `SELFSPEC_HOME`, else `selfspec` in the platform's cache folder.
    pub home: PathBuf,
    /// Use the cache only, without the network.
    pub offline: bool,
    /// Fetch models even if the cache has them.
    pub force: bool,
    /// The Hugging Face cache (`HF_HUB_CACHE`, else `HF_HOME`/hub, else
    /// `~/.cache/huggingface/hub`).
    pub hf_cache: PathBuf,
    /// Address of the Hugging Face hub (`HF_ENDPOINT`).
    pub hf_endpoint: String,
    /// Access token for it (`HF_TOKEN`, else the one that Hugging Face's own client stored).
    pub hf_token: Option<String>,
    /// Commands that run pip, tried in this order.
    pub pip: Vec<Vec<String>>,
    /// Time limit for the first answer of a source.
    pub connect_timeout: Duration,
    /// Time limit for a transfer that brings no bytes.
    pub stall_timeout: Duration,
}

impl HubOptions {
    /// The options of the environment variables.
    ///
    /// # Errors
    /// [`HubError::NoHome`] when neither `SELFSPEC_HOME` nor the user's home folder is known.
    pub fn from_env() -> Result<Self, HubError> {
        let var = |name: &str| std::env::var(name).ok().filter(|v| !v.trim().is_empty());
        let home = match var("SELFSPEC_HOME") {
            Some(home) => PathBuf::from(home),
            None => dirs::cache_dir().ok_or(HubError::NoHome)?.join("selfspec"),
        };
        let hf_cache = match (var("HF_HUB_CACHE"), var("HF_HOME")) {
            (Some(cache), _) => PathBuf::from(cache),
            (None, Some(home)) => PathBuf::from(home).join("hub"),
            (None, None) => dirs::home_dir().ok_or(HubError::NoHome)?.join(".cache/huggingface/hub"),
        };
        let hf_token = var("HF_TOKEN").or_else(|| hf_hub::Cache::new(hf_cache.clone()).token());
        let hf_endpoint = var("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        Ok(HubOptions {
            home,
            offline: false,
            force: false,
            hf_cache,
            hf_endpoint: hf_endpoint.trim_end_matches('/').to_owned(),
            hf_token,
            pip: pip_commands(),
            connect_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(60),
        })
    }
}

/// Commands that run pip, in the order in which they are tried.
fn pip_commands() -> Vec<Vec<String>> {
    [&["python3", "-m", "pip"][..], &["python", "-m", "pip"], &["pip3"], &["pip"], &["uv", "tool", "run", "pip"]]
        .iter()
        .map(|c| c.iter().map(|s| (*s).to_owned()).collect())
        .collect()
}
