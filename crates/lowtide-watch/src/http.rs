//! Answering requests for `/metrics`.
//!
//! One thread takes connections; each is served by a thread of its own, which ends with it. A
//! client has `PATIENCE` to send its request and as long to take the answer, and there are at
//! most `CONNECTIONS` at a time: a further one is answered with 503. A connection serves one
//! request. Requests are parsed by `httparse`, and at most `REQUEST_MAX` bytes of one are read.
//!
//! **This machine only.** A server on a loopback address is for this machine, but a browser here
//! runs programs of others: their page is of a name whose address becomes 127.0.0.1 (DNS
//! rebinding). Such a request has that name in its `Host`, so there only requests for `localhost`
//! or a loopback address are answered. An address that others reach has names that this does not
//! know.
//!
//! A client that accepts OpenMetrics gets it; others get the older text format.

use lowtide_status::{Status, metrics};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// The time that a client has for its request, and for the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections at a time.
const CONNECTIONS: usize = 128;
/// Bytes of a request, with its headers.
const REQUEST_MAX: usize = 8 << 10;
/// Its headers.
const HEADERS_MAX: usize = 64;
/// Bytes of the stack of a thread that answers.
const STACK: usize = 256 << 10;
/// The pause after the kernel has refused a connection: descriptors may be free again.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);

/// Which processes are shown.
pub type Pages = dyn Fn() -> Vec<Status> + Send + Sync;

/// Serves metrics.
pub struct Server {
    listener: TcpListener,
    pages: Arc<Pages>,
    busy: Arc<AtomicUsize>,
    /// For this machine only.
    is_local: bool,
}

impl Server {
    /// Serves what `pages` returns, which is called for each request.
    ///
    /// # Errors
    /// The listener cannot be made non-blocking, or has no address.
    pub fn new(listener: TcpListener, pages: Arc<Pages>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let is_local = listener.local_addr()?.ip().is_loopback();
        Ok(Self { listener, pages, busy: Arc::default(), is_local })
    }

    /// Takes connections for some time, or until `other` can be read, which is the end of a
    /// process for its descriptor. Returns whether it can.
    ///
    /// # Errors
    /// Those of waiting. A connection that fails harms no other.
    pub fn serve(&self, time: Duration, other: Option<&dyn AsFdRef>) -> io::Result<bool> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut polled = vec![PollFd::new(&self.listener, PollFlags::IN)];
            polled.extend(other.map(|fd| PollFd::from_borrowed_fd(fd.fd(), PollFlags::IN)));
            let timeout =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut polled, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let ready = |at: usize| polled.get(at).is_some_and(|fd| !fd.revents().is_empty());
            let (has_clients, has_ended) = (ready(0), ready(1));
            if has_clients {
                self.accept();
            }
            if has_ended {
                return Ok(true);
            }
            if until <= Instant::now() {
                return Ok(false);
            }
        }
    }

    fn accept(&self) {
        match self.listener.accept() {
            Ok((stream, _)) => self.begin(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => thread::sleep(REFUSED_PAUSE),
        }
    }

    fn begin(&self, mut stream: TcpStream) {
        let _ = stream.set_nonblocking(false);
        if self.busy.fetch_add(1, Relaxed) >= CONNECTIONS {
            self.busy.fetch_sub(1, Relaxed);
            // It fits into the socket, so this does not wait.
            let _ = stream.write_all(&Answer::error(503, "too many connections\n").bytes(true));
            return;
        }
        let one = Busy(Arc::clone(&self.busy));
        let (pages, is_local) = (Arc::clone(&self.pages), self.is_local);
        let serve = move || {
            let _one = one;
            let _ = answer(&mut stream, &*pages, is_local);
        };
        // Without a thread the connection is closed.
        let _ = thread::Builder::new().stack_size(STACK).spawn(serve);
    }
}

/// A descriptor to wait for.
pub trait AsFdRef {
    /// The descriptor.
    fn fd(&self) -> std::os::fd::BorrowedFd<'_>;
}

impl<T: AsFd> AsFdRef for T {
    fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.as_fd()
    }
}

/// A connection that is served.
struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

struct Answer {
    status: u16,
    kind: &'static str,
    body: String,
}

impl Answer {
    fn error(status: u16, body: &str) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: body.to_owned() }
    }

    fn bytes(&self, with_body: bool) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            421 => "Misdirected Request",
            431 => "Request Header Fields Too Large",
            _ => "Service Unavailable",
        };
        let allow = if self.status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        let mut text = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}\
             Connection: close\r\n\r\n",
            self.status,
            self.kind,
            self.body.len()
        );
        if with_body {
            text += &self.body;
        }
        text.into_bytes()
    }
}

/// Reads a request and answers it.
fn answer(stream: &mut TcpStream, pages: &Pages, is_local: bool) -> io::Result<()> {
    let (answer, with_body) = match request(stream)? {
        Some(text) => judge(&text, pages, is_local),
        None => return Ok(()),
    };
    let bytes = answer.bytes(with_body);
    let (until, mut sent) = (Instant::now() + PATIENCE, 0);
    while sent < bytes.len() {
        stream.set_write_timeout(Some(left(until)?))?;
        match stream.write(&bytes[sent..])? {
            0 => break,
            more => sent += more,
        }
    }
    stream.shutdown(Shutdown::Write)
}

/// The time until then.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The bytes of a request up to the end of its headers, or as many as are read; none of a client
/// that says nothing.
fn request(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let (until, mut text, mut part) = (Instant::now() + PATIENCE, Vec::new(), [0; 2048]);
    while text.len() < REQUEST_MAX && !is_whole(&text) {
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut part)? {
            0 => return Ok((!text.is_empty()).then_some(text)),
            read => text.extend_from_slice(&part[..read]),
        }
    }
    Ok(Some(text))
}

fn is_whole(text: &[u8]) -> bool {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    // One that is wrong needs no more bytes.
    !matches!(httparse::Request::new(&mut headers).parse(text), Ok(httparse::Status::Partial))
}

/// Whether a `Host` is this machine's name for itself: `localhost:9464`, `127.0.0.1`, `[::1]:80`.
fn is_loopback(host: &[u8]) -> bool {
    let Ok(host) = str::from_utf8(host) else { return false };
    let host = host.trim();
    // A port follows the last colon, unless that is within an address in brackets.
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let is_address = bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_address || name.eq_ignore_ascii_case("localhost")
}

/// The answer to a request, and whether its body is sent.
fn judge(text: &[u8], pages: &Pages, is_local: bool) -> (Answer, bool) {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(text) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => {
            return (Answer::error(431, "the request is too long\n"), true);
        }
        Err(_) => return (Answer::error(400, "this is no request\n"), true),
    }
    let with_body = request.method != Some("HEAD");
    if with_body && request.method != Some("GET") {
        return (Answer::error(405, "only GET and HEAD are answered\n"), true);
    }
    let mut hosts = request.headers.iter().filter(|it| it.name.eq_ignore_ascii_case("host"));
    if is_local && !hosts.all(|host| is_loopback(host.value)) {
        let text = "these metrics are for this machine: ask for localhost or 127.0.0.1\n";
        return (Answer::error(421, text), with_body);
    }
    let path = request.path.unwrap_or_default().split('?').next();
    if path != Some("/metrics") {
        return (Answer::error(404, "metrics are at /metrics\n"), with_body);
    }
    let accepts = |header: &httparse::Header<'_>| {
        let value = String::from_utf8_lossy(header.value);
        header.name.eq_ignore_ascii_case("accept") && value.contains("application/openmetrics-text")
    };
    let (kind, body) = if request.headers.iter().any(accepts) {
        (metrics::OPENMETRICS_TYPE, metrics::openmetrics(pages()))
    } else {
        (metrics::PLAIN_TYPE, metrics::plain(pages()))
    };
    (Answer { status: 200, kind, body }, with_body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &str, is_local: bool) -> u16 {
        judge(request.as_bytes(), &Vec::new, is_local).0.status
    }

    #[test]
    fn names_of_others_are_not_answered_on_this_machine() {
        let asks = |host: &str| format!("GET /metrics HTTP/1.1\r\nhost: {host}\r\n\r\n");
        for own in ["localhost", "LocalHost:9464", "127.0.0.1", "127.0.0.2:1", "[::1]", "[::1]:80"]
        {
            assert_eq!(status(&asks(own), true), 200, "{own}");
        }
        for other in ["evil.example", "evil.example:9464", "", "10.0.0.1", "[::2]:1", "localhost.x"]
        {
            assert_eq!(status(&asks(other), true), 421, "{other}");
            assert_eq!(status(&asks(other), false), 200, "{other}");
        }
        let two = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n";
        assert_eq!(status(two, true), 421);
        assert_eq!(status("GET /metrics HTTP/1.0\r\n\r\n", true), 200, "it names none");
    }
}
