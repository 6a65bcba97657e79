//! A server on this machine that answers like the Hugging Face hub.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// How the server misbehaves.
#[derive(Default)]
pub(crate) struct Faults {
    /// Breaks a transfer off after this many bytes, once.
    pub break_after: Option<usize>,
    /// Accepts connections and says nothing.
    pub mute: bool,
    /// Serves other bytes than the etag promises, this many times.
    pub corrupt: usize,
    /// Refuses requests without this token.
    pub token: Option<String>,
}

pub(crate) struct Server {
    pub endpoint: String,
    shared: Arc<Shared>,
}

struct Shared {
    repo: String,
    files: BTreeMap<String, Vec<u8>>,
    faults: Mutex<Faults>,
    log: Mutex<Vec<String>>,
}

impl Server {
    /// Serves the files of one repository at revision `main`.
    pub(crate) fn start(repo: &str, files: &[(&str, &[u8])], faults: Faults) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("a bound port"));
        let shared = Arc::new(Shared {
            repo: repo.to_owned(),
            files: files.iter().map(|(n, c)| ((*n).to_owned(), c.to_vec())).collect(),
            faults: Mutex::new(faults),
            log: Mutex::new(Vec::new()),
        });
        let for_thread = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = for_thread.clone();
                // A client that hangs up is its own business.
                std::thread::spawn(move || shared.serve(stream).ok());
            }
        });
        Server { endpoint, shared }
    }

    /// `path range` of each request for a file's bytes.
    pub(crate) fn log(&self) -> Vec<String> {
        self.shared.log.lock().expect("no panic while locked").clone()
    }
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

impl Shared {
    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let request = lines.next().transpose()?.unwrap_or_default();
        let (mut range, mut token) = (None, None);
        for line in lines {
            let line = line?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').unwrap_or((&line, ""));
            match name.to_ascii_lowercase().as_str() {
                "range" => range = value.trim().strip_prefix("bytes=").map(str::to_owned),
                "authorization" => token = value.trim().strip_prefix("Bearer ").map(str::to_owned),
                _ => {}
            }
        }
        if self.faults.lock().expect("no panic while locked").mute {
            std::thread::sleep(std::time::Duration::from_secs(600));
        }
        let path = request.split(' ').nth(1).unwrap_or("").to_owned();
        self.answer(stream, &path, range.as_deref(), token)
    }

    fn answer(&self, mut to: TcpStream, path: &str, range: Option<&str>, token: Option<String>) -> std::io::Result<()> {
        let mut faults = self.faults.lock().expect("no panic while locked");
        if faults.token.is_some() && faults.token != token {
            return write!(to, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
        if path == format!("/api/models/{}/revision/main", self.repo) {
            let names: Vec<_> = self.files.keys().map(|n| format!("{{\"rfilename\":\"{n}\"}}")).collect();
            let body = format!("{{\"sha\":\"{COMMIT}\",\"siblings\":[{}]}}", names.join(","));
            let head = "Content-Type: application/json\r\nConnection: close";
            return write!(to, "HTTP/1.1 200 OK\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        }
        let name = path.strip_prefix(&format!("/{}/resolve/main/", self.repo));
        let Some(content) = name.and_then(|n| self.files.get(n)) else {
            return write!(to, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        };
        let (from, until) = range.and_then(|r| r.split_once('-')).unwrap_or(("0", ""));
        let from: usize = from.parse().unwrap_or(0);
        let until = until.parse().map_or(content.len(), |u: usize| (u + 1).min(content.len()));
        let probe = range == Some("0-0");
        let mut body = content[from.min(until)..until].to_vec();
        if !probe {
            self.log.lock().expect("no panic while locked").push(format!("{path} {from}"));
            if faults.corrupt > 0 {
                faults.corrupt -= 1;
                body.iter_mut().for_each(|b| *b ^= 0xff);
            }
        }
        write!(
            to,
            "HTTP/1.1 206 Partial Content\r\nETag: \"{}\"\r\nX-Repo-Commit: {COMMIT}\r\n\
             Content-Range: bytes {from}-{}/{}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            sha256(content),
            until - 1,
            content.len(),
            body.len()
        )?;
        if !probe && let Some(n) = faults.break_after.take() {
            return to.write_all(&body[..n.min(body.len())]);
        }
        to.write_all(&body)
    }
}
