//! A few pages over HTTP for whoever watches a rank: one thread, one guest after the other, and
//! bounds on what a guest may cost. And the other side of it: asking for one page.
//!
//! Guests may be slow or send garbage; what they cost is this thread's time, up to `GUEST_TIME`
//! each. It is HTTP/1.1 without reuse of connections, as far as Prometheus and a browser need it.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a guest may take from the first byte to the last.
const GUEST_TIME: Duration = Duration::from_secs(1);
/// Longer requests are refused.
const REQUEST_BYTES: usize = 8 << 10;
/// Longer answers are not read.
const ANSWER_BYTES: usize = 64 << 20;
/// More lines than this are no head of a request or an answer.
const HEAD_LINES: usize = 64;

/// What a path leads to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HttpPage {
    /// Its media type.
    pub media: &'static str,
    /// Its text.
    pub text: String,
}

/// Serves pages until it is dropped.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Listens at the first free port of `ports`, and gives those who ask the page that `page` has
    /// for their path.
    ///
    /// # Errors
    /// When no port can be opened (the error is the first port's), or no thread started.
    pub fn start(
        bind: IpAddr,
        ports: RangeInclusive<u16>,
        page: impl FnMut(&str) -> Option<HttpPage> + Send + 'static,
    ) -> io::Result<Self> {
        let listener = listen(bind, ports)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("gradwire-http".to_owned())
            .spawn(move || serve(&listener, &seen, page))?;
        Ok(Self {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // The thread waits for a guest: be one.
        let mut at = self.address;
        if at.ip().is_unspecified() {
            at.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        let woken = TcpStream::connect_timeout(&at, GUEST_TIME).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "transport is where sockets are opened"
)]
fn listen(bind: IpAddr, ports: RangeInclusive<u16>) -> io::Result<TcpListener> {
    let mut first = None;
    for port in ports {
        match TcpListener::bind(SocketAddr::new(bind, port)) {
            Ok(listener) => return Ok(listener),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| io::ErrorKind::InvalidInput.into()))
}

fn serve(
    listener: &TcpListener,
    stop: &AtomicBool,
    mut page: impl FnMut(&str) -> Option<HttpPage>,
) {
    for guest in listener.incoming() {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        // A guest that went away, or for whom there was no descriptor left.
        let Ok(guest) = guest else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        // What goes wrong with a guest is the guest's own loss.
        let _ = attend(TimedStream::new(guest, GUEST_TIME), &mut page);
    }
}

fn attend(
    mut guest: TimedStream,
    page: &mut impl FnMut(&str) -> Option<HttpPage>,
) -> io::Result<()> {
    let mut request = Vec::new();
    let (status, page) = loop {
        match path_of(&request) {
            ParsedRequest::Path(path) => match page(&path) {
                Some(page) => break ("200 OK", page),
                None => break ("404 Not Found", said("there is no such page\n")),
            },
            ParsedRequest::Otherwise => {
                break ("405 Method Not Allowed", said("only GET is known\n"));
            }
            ParsedRequest::Garbage => break ("400 Bad Request", said("that is no HTTP\n")),
            ParsedRequest::Unfinished if request.len() >= REQUEST_BYTES => {
                break ("431 Request Header Fields Too Large", said("too long\n"));
            }
            ParsedRequest::Unfinished => guest.read_some(&mut request, REQUEST_BYTES)?,
        }
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        page.media,
        page.text.len()
    );
    guest.write_all(head.as_bytes())?;
    guest.write_all(page.text.as_bytes())
}

fn said(text: &str) -> HttpPage {
    HttpPage {
        media: "text/plain; charset=utf-8",
        text: text.to_owned(),
    }
}

enum ParsedRequest {
    Path(String),
    Otherwise,
    Garbage,
    Unfinished,
}

fn path_of(request: &[u8]) -> ParsedRequest {
    let mut lines = [httparse::EMPTY_HEADER; HEAD_LINES];
    let mut parsed = httparse::Request::new(&mut lines);
    match parsed.parse(request) {
        Ok(httparse::Status::Partial) => ParsedRequest::Unfinished,
        Ok(httparse::Status::Complete(_)) if parsed.method != Some("GET") => {
            ParsedRequest::Otherwise
        }
        Ok(httparse::Status::Complete(_)) => {
            let path = parsed.path.unwrap_or("/");
            let path = path.split('?').next().unwrap_or(path);
            ParsedRequest::Path(path.to_owned())
        }
        Err(_) => ParsedRequest::Garbage,
    }
}

/// Why a page was not to be had.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// Nobody listens, or nobody answered in time.
    #[error("{0}")]
    Unreachable(#[from] io::Error),
    /// Somebody answered something else.
    #[error("it answered {status}")]
    Refused {
        /// The status of HTTP; 0 for what is no HTTP.
        status: u16,
    },
}

/// The page at `path` of a server, within `patience`.
///
/// # Errors
/// [`GetError`] when there is no server, it takes too long, or it has no such page.
pub fn get(server: SocketAddr, path: &str, patience: Duration) -> Result<Vec<u8>, GetError> {
    let stream = TcpStream::connect_timeout(&server, patience)?;
    let mut server_side = TimedStream::new(stream, patience);
    let request = format!("GET {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n");
    server_side.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    loop {
        match server_side.read_some(&mut answer, ANSWER_BYTES) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error.into()),
        }
    }
    let mut lines = [httparse::EMPTY_HEADER; HEAD_LINES];
    let mut parsed = httparse::Response::new(&mut lines);
    match (parsed.parse(&answer), parsed.code) {
        (Ok(httparse::Status::Complete(head)), Some(200)) => Ok(answer.split_off(head)),
        (Ok(_), status) => Err(GetError::Refused {
            status: status.unwrap_or(0),
        }),
        (Err(_), _) => Err(GetError::Refused { status: 0 }),
    }
}

/// A connection all of whose reads and writes together may take so long.
struct TimedStream {
    stream: TcpStream,
    until: Instant,
}

impl TimedStream {
    #[expect(
        clippy::disallowed_methods,
        reason = "transport has a clock, and this bounds a stranger's time"
    )]
    fn new(stream: TcpStream, patience: Duration) -> Self {
        Self {
            stream,
            until: Instant::now() + patience,
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "transport has a clock, and this bounds a stranger's time"
    )]
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(left),
        }
    }

    /// Appends what comes next, until there are `most` bytes at most.
    fn read_some(&mut self, bytes: &mut Vec<u8>, most: usize) -> io::Result<()> {
        let mut part = [0; 16 << 10];
        let room = part.len().min(most - bytes.len().min(most));
        if room == 0 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.stream.set_read_timeout(Some(self.left()?))?;
        match self.stream.read(&mut part[..room])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                bytes.extend_from_slice(&part[..read]);
                Ok(())
            }
        }
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(self.left()?))?;
            match self.stream.write(bytes)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => bytes = &bytes[written..],
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const PATIENCE: Duration = Duration::from_secs(10);

    fn server() -> HttpServer {
        let page = |path: &str| (path == "/here").then(|| said("some text"));
        HttpServer::start(LOOPBACK, 0..=0, page).expect("loopback has ports")
    }

    /// What a server answers to raw bytes.
    fn answer_to(server: &HttpServer, bytes: &[u8]) -> String {
        let stream = TcpStream::connect_timeout(&server.address(), PATIENCE);
        let mut stream = stream.expect("it listens");
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[test]
    fn a_page_is_given_to_those_who_ask_for_it() {
        let server = server();
        let page = get(server.address(), "/here", PATIENCE).expect("it is there");
        assert_eq!(page, b"some text");
        let page = get(server.address(), "/here?a=b", PATIENCE).expect("it is there");
        assert_eq!(page, b"some text");
        let error = get(server.address(), "/there", PATIENCE).expect_err("no such page");
        assert_eq!(error.to_string(), "it answered 404");
    }

    #[test]
    fn garbage_is_refused_and_the_next_guest_is_served() {
        let server = server();
        let long = vec![b'a'; REQUEST_BYTES + 1];
        let head = [b"GET /here HTTP/1.1\r\nx: ".as_slice(), &long].concat();
        for (bytes, status) in [
            (b"\x00\xff\x16\x03garbage\r\n\r\n".as_slice(), "400"),
            (b"POST /here HTTP/1.1\r\n\r\n", "405"),
            (&head[..REQUEST_BYTES], "431"),
        ] {
            let answer = answer_to(&server, bytes);
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{answer}"
            );
        }
        assert!(get(server.address(), "/here", PATIENCE).is_ok());
    }

    #[test]
    fn a_guest_that_says_nothing_does_not_keep_the_others_out() {
        let server = server();
        let idle: Vec<_> = (0..3)
            .map(|_| TcpStream::connect_timeout(&server.address(), PATIENCE))
            .collect();
        assert!(get(server.address(), "/here", PATIENCE).is_ok());
        drop(idle);
    }

    #[test]
    fn a_taken_port_is_passed_over_and_none_left_is_an_error() {
        let first = server();
        let port = first.address().port();
        let start = |ports| HttpServer::start(LOOPBACK, ports, |_| None);
        let error = start(port..=port).expect_err("it is taken");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let next = start(port..=port.saturating_add(63)).expect("one of the others is free");
        assert!(next.address().port() > port);
    }
}
