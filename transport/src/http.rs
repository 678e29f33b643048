//! Serves a few pages over HTTP to those who watch a rank, and fetches such a page.
//!
//! - One thread serves all clients. It reads from those that send, and waits for none: a client
//!   that idles is forgotten after `CLIENT_TIME`. One that does not read its answer delays the
//!   others by as much.
//! - A request must name this host, by an address or its name. So a page of another site cannot
//!   have a browser read the metrics under that site's name (DNS rebinding).
//! - This is HTTP/1.1 without reuse of connections, as far as Prometheus and browsers need it.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::gethostname;

/// The maximum time from the first byte of a request to the last byte of the answer.
const CLIENT_TIME: Duration = Duration::from_secs(1);
/// Clients at one time.
const CLIENTS_MAX: usize = 64;
/// The answer to a request that names another host.
const OTHER_HOST: &str = "ask by an IP address, by localhost, or by the name of this host\n";
/// Longer requests are refused.
const REQUEST_BYTES: usize = 8 << 10;
/// Longer answers are not read.
const ANSWER_BYTES: usize = 64 << 20;
/// Heads with more lines than this are refused.
const HEAD_LINES: usize = 64;

/// The page at a path.
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
    /// Listens at the first free port of `ports`. `page` returns the page for a path, or `None` if
    /// there is no such page.
    ///
    /// # Errors
    /// When no port can be opened (the error is the first port's), or no thread started.
    pub fn start(
        bind: IpAddr,
        ports: RangeInclusive<u16>,
        page: impl FnMut(&str) -> Option<HttpPage> + Send + 'static,
    ) -> io::Result<Self> {
        let listener = listen(bind, ports)?;
        listener.set_nonblocking(true)?;
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
        // The thread waits for a connection, so make one to wake it.
        let mut at = self.address;
        if at.ip().is_unspecified() {
            at.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        let woken = TcpStream::connect_timeout(&at, CLIENT_TIME).is_ok();
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

/// A client whose request has not arrived whole.
struct WaitingClient {
    stream: TimedStream,
    request: Vec<u8>,
}

fn serve(
    listener: &TcpListener,
    stop: &AtomicBool,
    mut page: impl FnMut(&str) -> Option<HttpPage>,
) {
    let mut clients: Vec<WaitingClient> = Vec::new();
    loop {
        let (knocks, ready) = wait(listener, &clients);
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let readable = |at: usize| ready.get(at).copied().unwrap_or(false);
        let mut at = 0;
        clients.retain_mut(|client| {
            at += 1;
            match readable(at - 1) {
                // A connection that fails costs only its own client the answer.
                true => {
                    attend(client, &mut page).unwrap_or(ClientStage::Done) == ClientStage::Waits
                }
                false => client.stream.left().is_ok(),
            }
        });
        if knocks {
            accept(listener, &mut clients);
        }
    }
}

/// Waits until a client connects or sends bytes, or the first one's time is over. Returns whether
/// one connects, and which send.
fn wait(listener: &TcpListener, clients: &[WaitingClient]) -> (bool, Vec<bool>) {
    let sockets = clients.iter().map(|client| client.stream.stream.as_fd());
    let sockets = [listener.as_fd()].into_iter().chain(sockets);
    let read = |socket| PollFd::new(socket, PollFlags::POLLIN);
    let mut polled: Vec<PollFd<'_>> = sockets.map(read).collect();
    let left = clients
        .iter()
        .filter_map(|client| client.stream.left().ok());
    let most = left.min().map_or(PollTimeout::NONE, |left| {
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    });
    let expired = clients.iter().any(|client| client.stream.left().is_err());
    let most = if expired { PollTimeout::ZERO } else { most };
    // An interrupted wait ends early.
    let _ = poll(&mut polled, most);
    let mut ready = polled.iter().map(|one| one.any() == Some(true));
    let knocks = ready.next() == Some(true);
    (knocks, ready.collect())
}

/// Accepts the clients that have connected. If there are too many, the one that has waited longest
/// must go.
fn accept(listener: &TcpListener, clients: &mut Vec<WaitingClient>) {
    loop {
        match listener.accept() {
            Ok((client, _)) => {
                if clients.len() == CLIENTS_MAX {
                    clients.remove(0);
                }
                clients.push(WaitingClient {
                    stream: TimedStream::new(client, CLIENT_TIME),
                    request: Vec::new(),
                });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            // The client went away, or this process has no descriptor left.
            Err(_) => {
                std::thread::sleep(Duration::from_millis(10));
                return;
            }
        }
    }
}

/// Whether a client has its answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ClientStage {
    Waits,
    Done,
}

/// Reads the bytes that a client has sent, and answers if its request is complete.
fn attend(
    client: &mut WaitingClient,
    page: &mut impl FnMut(&str) -> Option<HttpPage>,
) -> io::Result<ClientStage> {
    client
        .stream
        .read_some(&mut client.request, REQUEST_BYTES)?;
    let (status, page) = match path_of(&client.request) {
        ParsedRequest::Path(path) => match page(&path) {
            Some(page) => ("200 OK", page),
            None => ("404 Not Found", said("there is no such page\n")),
        },
        ParsedRequest::Otherwise => ("405 Method Not Allowed", said("only GET is supported\n")),
        ParsedRequest::Elsewhere => ("421 Misdirected Request", said(OTHER_HOST)),
        ParsedRequest::Garbage => ("400 Bad Request", said("this is not HTTP\n")),
        ParsedRequest::Unfinished if client.request.len() >= REQUEST_BYTES => {
            ("431 Request Header Fields Too Large", said("too long\n"))
        }
        ParsedRequest::Unfinished => return Ok(ClientStage::Waits),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        page.media,
        page.text.len()
    );
    client.stream.write_all(head.as_bytes())?;
    client.stream.write_all(page.text.as_bytes())?;
    Ok(ClientStage::Done)
}

fn said(text: &str) -> HttpPage {
    HttpPage {
        media: "text/plain; charset=utf-8",
        text: text.to_owned(),
    }
}

/// A request as far as it has arrived.
enum ParsedRequest {
    Path(String),
    Otherwise,
    /// It names another host.
    Elsewhere,
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
        Ok(httparse::Status::Complete(_)) if !names_this_host(parsed.headers) => {
            ParsedRequest::Elsewhere
        }
        Ok(httparse::Status::Complete(_)) => {
            let path = parsed.path.unwrap_or("/");
            let path = path.split('?').next().unwrap_or(path);
            ParsedRequest::Path(path.to_owned())
        }
        Err(_) => ParsedRequest::Garbage,
    }
}

/// Whether the request's host name means this host, as far as the name shows. A request without a
/// name comes from no browser.
fn names_this_host(headers: &[httparse::Header<'_>]) -> bool {
    let mut hosts = headers
        .iter()
        .filter(|one| one.name.eq_ignore_ascii_case("host"));
    let Some(host) = hosts.next() else {
        return true;
    };
    let Ok(host) = std::str::from_utf8(host.value) else {
        return false;
    };
    if host.parse::<SocketAddr>().is_ok() || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
    {
        return true;
    }
    let name = host.split(':').next().unwrap_or(host);
    let first = name.split('.').next().unwrap_or(name);
    let own = gethostname().ok().and_then(|own| own.into_string().ok());
    let own = own.as_deref().and_then(|own| own.split('.').next());
    name.eq_ignore_ascii_case("localhost") || own.is_some_and(|own| first.eq_ignore_ascii_case(own))
}

/// A page could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// The server does not listen, or did not answer in time.
    #[error("{0}")]
    Unreachable(#[from] io::Error),
    /// The server answered without the page.
    #[error("it answered {status}")]
    Refused {
        /// The HTTP status; 0 if the answer is not HTTP.
        status: u16,
    },
}

/// Fetches the page at `path` of a server, within `patience`.
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

/// A connection with one deadline for all its reads and writes.
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

    /// Appends the next bytes, as long as `bytes` has at most `most` of them.
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

    /// The server's answer to raw bytes.
    fn answer_to(server: &HttpServer, bytes: &[u8]) -> String {
        let stream = TcpStream::connect_timeout(&server.address(), PATIENCE);
        let mut stream = stream.expect("it listens");
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[test]
    fn pages_are_served_by_path() {
        let server = server();
        let page = get(server.address(), "/here", PATIENCE).expect("it is there");
        assert_eq!(page, b"some text");
        let page = get(server.address(), "/here?a=b", PATIENCE).expect("it is there");
        assert_eq!(page, b"some text");
        let error = get(server.address(), "/there", PATIENCE).expect_err("no such page");
        assert_eq!(error.to_string(), "it answered 404");
    }

    #[test]
    fn garbage_is_refused_and_the_next_client_served() {
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
    #[expect(clippy::disallowed_methods, reason = "the test measures time")]
    fn silent_clients_do_not_block_the_others() {
        let server = server();
        let idle: Vec<_> = (0..CLIENTS_MAX + 3)
            .map(|_| TcpStream::connect_timeout(&server.address(), PATIENCE))
            .collect();
        let start = Instant::now();
        for _ in 0..5 {
            assert!(get(server.address(), "/here", PATIENCE).is_ok());
        }
        assert!(start.elapsed() < CLIENT_TIME / 2, "{:?}", start.elapsed());
        drop(idle);
    }

    #[test]
    fn only_names_of_this_host_are_answered() {
        let server = server();
        let own = gethostname().expect("the host has a name");
        let own = own.into_string().expect("a plain name");
        for (host, status) in [
            ("127.0.0.1:80".to_owned(), "200"),
            ("[::1]".to_owned(), "200"),
            ("LocalHost:9400".to_owned(), "200"),
            (format!("{own}.example:9400"), "200"),
            ("rebound.example".to_owned(), "421"),
        ] {
            let request = format!("GET /here HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let answer = answer_to(&server, request.as_bytes());
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{host}: {answer}"
            );
        }
    }

    #[test]
    fn the_first_free_port_is_taken() {
        let first = server();
        let port = first.address().port();
        let start = |ports| HttpServer::start(LOOPBACK, ports, |_| None);
        let error = start(port..=port).expect_err("it is taken");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let next = start(port..=port.saturating_add(63)).expect("one of the others is free");
        assert!(next.address().port() > port);
    }
}
