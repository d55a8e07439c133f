//! Promise: what a program under `lowtide run` does can be seen from outside while it runs: by
//! `lowtide stat`, and as metrics. What is seen is gone with the program, however it ends.

use crate::common;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::programs::{BUDGET, Files, maps, plain, run};
use crate::common::text;
use serde_json::Value;

/// Nothing is waited for longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for something, as long as it takes.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what} does not come");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A program that runs.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    /// `examples/watched.rs` under `lowtide run` with these options.
    fn start(files: &Files, options: &[&str], words: &[&str]) -> Self {
        let program = maps().with_file_name("watched");
        let data = files.data();
        let program = [&[program.to_str().unwrap(), data.as_str()], words].concat();
        let summary = files.path("summary");
        let options = [&["--max", BUDGET, "--summary", &summary], options].concat();
        let mut command = run(&options, &program);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// The number of a process that says it is ready.
    fn ready(&mut self) -> u32 {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim().strip_prefix("ready ").expect("it is ready").parse().expect("a number")
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its first page with a pager.
    fn page(&self) -> Value {
        page(self.pid())
    }

    fn kill(&mut self) {
        self.child.kill().expect("a signal");
        self.child.wait().expect("its end");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stat(args: &[&str]) -> Output {
    plain(common::path()).arg("stat").args(args).output().unwrap()
}

/// The page of a process, once it says what it keeps.
fn page(pid: u32) -> Value {
    until("a page", || {
        let output = stat(&[&pid.to_string(), "--json"]);
        let page: Value = serde_json::from_slice(&output.stdout).ok()?;
        (page["pagers"][0]["tenants"][1]["faults"].as_u64()? > 0).then_some(page)
    })
}

/// The message of a `stat` that fails.
fn refusal(pid: u32) -> String {
    let output = stat(&[&pid.to_string()]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    text(&output.stderr)
}

fn file_of(pid: u32) -> PathBuf {
    let uid = fs::metadata("/proc/self").unwrap().uid();
    PathBuf::from(format!("/dev/shm/lowtide-{uid}/{pid}"))
}

#[test]
fn a_program_is_seen_while_it_runs_and_not_after_it_was_killed() {
    let files = Files::new();
    let mut program = Running::start(&files, &[], &[]);
    let pid = program.ready();
    assert_eq!(pid, program.pid(), "`lowtide run` becomes the program");
    let page = program.page();
    assert_eq!(page["pid"], pid);
    assert_eq!(page["program"], "watched");
    assert_eq!(page["origin"], "run");
    let tenant = &page["pagers"][0]["tenants"][1];
    assert_eq!(tenant["max_bytes"], 8 << 20);
    assert_eq!(tenant["files"][0], files.data().as_str());
    // It goes on: what counts grows.
    let later = until("a later page", || {
        let later = program.page();
        (later["written_ns"].as_u64() > page["written_ns"].as_u64()).then_some(later)
    });
    let faults = |page: &Value| page["pagers"][0]["tenants"][1]["faults"].as_u64();
    assert!(faults(&later) >= faults(&page));

    let shown = text(&stat(&[&pid.to_string()]).stdout);
    for word in ["watched (", "under lowtide run", "/run-0", "8M", &files.data()] {
        assert!(shown.contains(word), "{word}\n{shown}");
    }
    let all = text(&stat(&[]).stdout);
    assert!(all.lines().any(|line| line.starts_with(&pid.to_string())), "{all}");
    assert!(file_of(pid).exists());

    program.kill();
    assert!(refusal(pid).contains(&format!("there is no process {pid}")));
    assert!(!file_of(pid).exists(), "a reader has removed it");
}

#[test]
fn a_program_that_ends_by_itself_leaves_nothing() {
    let files = Files::new();
    let mut program = Running::start(&files, &[], &[]);
    let pid = program.ready();
    program.page();
    drop(program.child.stdin.take());
    program.child.wait().expect("its end");
    assert!(!file_of(pid).exists());
}

#[test]
fn a_child_has_a_page_of_its_own() {
    let files = Files::new();
    let mut program = Running::start(&files, &[], &["fork"]);
    let pids = [program.ready(), program.ready()];
    let child = pids.into_iter().find(|pid| *pid != program.pid()).expect("the child");
    let (of_child, of_parent) = (page(child), program.page());
    assert_eq!((&of_child["pid"], &of_parent["pid"]), (&child.into(), &program.pid().into()));
    assert_ne!(of_child["start_ticks"], Value::Null);
}

#[test]
fn a_program_that_the_program_becomes_is_not_taken_for_it() {
    let files = Files::new();
    let program = maps().to_str().unwrap().to_owned();
    let program = [&program, "exec", &files.data(), "/bin/sleep", "1000"];
    let mut child = run(&["--max", BUDGET], &program).spawn().unwrap();
    let pid = child.id();
    let comm = || fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    until("the other program", || (comm() == "sleep\n").then_some(()));
    let text = refusal(pid);
    assert!(text.contains(&format!("process {pid} (sleep) has no status page")), "{text}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_process_that_cannot_be_shown_is_refused_with_the_reason() {
    assert!(refusal(u32::MAX >> 2).contains("there is no process"));
    let mut alone = plain("sleep").arg("1000").spawn().unwrap();
    let message = refusal(alone.id());
    assert!(message.contains("has no status page: start it with `lowtide run`"), "{message}");
    alone.kill().unwrap();
    alone.wait().unwrap();
    // Only root starts processes of others.
    if let Ok(mut other) = plain("sleep").arg("1000").uid(54_321).spawn() {
        let message = refusal(other.id());
        assert!(message.contains("belongs to user 54321"), "{message}");
        other.kill().unwrap();
        other.wait().unwrap();
    }
    let files = Files::new();
    let mut program = Running::start(&files, &[], &[]);
    let pid = program.ready();
    program.page();
    // A version of some years from now; the program does not write it while it is stopped.
    let stop = |signal: &str| plain("kill").args([signal, &pid.to_string()]).status().unwrap();
    assert!(stop("-STOP").success());
    let page = fs::File::options().write(true).open(file_of(pid)).unwrap();
    page.write_all_at(&77_u32.to_ne_bytes(), 8).unwrap();
    let message = refusal(pid);
    assert!(message.contains("has format 77"), "{message}");
    let all = stat(&[]);
    assert!(all.status.success() && text(&all.stderr).contains("has format 77"));
    assert!(stop("-CONT").success());
}

/// An address on this machine that no process listens on.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Sends some bytes and reads the whole answer.
fn ask(port: u16, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn scrape(port: u16) -> std::io::Result<String> {
    ask(port, &format!("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"))
}

/// The value of a metric of the program's budget.
fn value(scraped: &str, name: &str, pid: u32) -> Option<f64> {
    let begin =
        format!("{name}{{pid=\"{pid}\",program=\"watched\",pager=\"0\",tenant=\"/run-0\"}} ");
    scraped.lines().find_map(|line| line.strip_prefix(&begin))?.parse().ok()
}

#[test]
fn metrics_are_served_to_many_clients_while_the_program_lives() {
    let (files, port) = (Files::new(), free_port());
    let address = format!(":{port}");
    let mut program = Running::start(&files, &["--metrics", &address], &[]);
    let pid = program.ready();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    assert_eq!(children, "", "the program has no child that it did not start");
    program.page();
    let first = scrape(port).expect("an answer");
    assert!(first.starts_with("HTTP/1.1 200 OK\r\n"), "{first}");
    assert!(first.contains("Content-Type: text/plain; version=0.0.4"), "{first}");
    assert_eq!(value(&first, "lowtide_tenant_max_bytes", pid), Some(8.0 * 1024.0 * 1024.0));
    let faults = value(&first, "lowtide_tenant_faults_total", pid).expect("faults");

    // Clients that say nothing, or take nothing, do not keep others waiting.
    let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut slow: Vec<TcpStream> = (0..20).map(|_| connect()).collect();
    for stream in &mut slow[..10] {
        stream.write_all(b"GET /met").unwrap();
    }
    let began = Instant::now();
    const SCRAPES: u32 = 300;
    let scraped: u32 = thread::scope(|scope| {
        let many = || (0..SCRAPES / 4).filter(|_| scrape(port).is_ok_and(|t| t.contains("200 OK")));
        let all: Vec<_> = (0..4).map(|_| scope.spawn(move || many().count() as u32)).collect();
        all.into_iter().map(|one| one.join().unwrap()).sum()
    });
    eprintln!("{SCRAPES} scrapes by 4 clients took {:?}", began.elapsed());
    assert_eq!(scraped, SCRAPES);
    drop(slow);

    let openmetrics =
        ask(port, "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n").unwrap();
    assert!(openmetrics.contains("application/openmetrics-text; version=1.0.0"));
    assert!(openmetrics.ends_with("# EOF\n"));
    let head = ask(port, "HEAD /metrics HTTP/1.1\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    let foreign = ask(port, "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n").unwrap();
    assert!(foreign.starts_with("HTTP/1.1 421 ") && !foreign.contains("lowtide_"), "{foreign}");
    assert!(ask(port, "GET / HTTP/1.1\r\n\r\n").unwrap().starts_with("HTTP/1.1 404 "));
    assert!(ask(port, "POST /metrics HTTP/1.1\r\n\r\n").unwrap().starts_with("HTTP/1.1 405 "));
    assert!(ask(port, "\u{1}\u{2}\r\n\r\n").unwrap().starts_with("HTTP/1.1 400 "));
    let endless = format!("GET /metrics HTTP/1.1\r\nA: {}", "a".repeat(8192));
    assert!(ask(port, &endless).unwrap().starts_with("HTTP/1.1 431 "));

    let later = scrape(port).unwrap();
    assert!(value(&later, "lowtide_tenant_faults_total", pid).expect("faults") >= faults);
    program.kill();
    until("the end of the exporter", || TcpStream::connect(("127.0.0.1", port)).err());
}

#[test]
fn a_child_that_outlives_the_program_is_exported_until_it_ends() {
    let (files, port) = (Files::new(), free_port());
    let address = port.to_string();
    let mut program = Running::start(&files, &["--metrics", &address], &["fork"]);
    let pids = [program.ready(), program.ready()];
    let child = pids.into_iter().find(|pid| *pid != program.pid()).expect("the child");
    page(child);
    let input = program.child.stdin.take();
    program.kill();
    let scraped = scrape(port).expect("an answer");
    assert!(value(&scraped, "lowtide_tenant_usage_bytes", child).is_some(), "{scraped}");
    drop(input);
    until("the end of the exporter", || TcpStream::connect(("127.0.0.1", port)).err());
}

#[test]
fn a_file_of_metrics_is_replaced_in_one_step_and_goes_with_the_program() {
    let files = Files::new();
    let path = files.path("lowtide.prom");
    let options = ["--metrics-file", &path, "--metrics-interval", "1"];
    let mut program = Running::start(&files, &options, &[]);
    let pid = program.ready();
    let usage = |text: &str| value(text, "lowtide_tenant_usage_bytes", pid);
    until("figures", || usage(&fs::read_to_string(&path).ok()?));
    program.kill();
    until("the end of the file", || fs::metadata(&path).err());
}

#[test]
fn an_address_or_a_file_that_is_refused_is_an_error_before_the_program_starts() {
    let files = Files::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let missing = files.path("no/such/lowtide.prom");
    let made = files.path("made");
    for (options, words) in [
        (["--metrics", taken.as_str()], "--metrics: cannot listen on 127.0.0.1:"),
        (["--metrics-file", missing.as_str()], "--metrics-file: cannot write metrics to "),
        (["--metrics", "everywhere"], "give a port"),
    ] {
        let options = [&["--max", BUDGET], &options[..]].concat();
        let output = run(&options, &["touch", &made]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        let error = text(&output.stderr);
        assert!(error.contains(words), "{error}");
        assert!(fs::metadata(&made).is_err(), "the program was started");
    }
}

#[test]
fn the_metrics_of_all_processes_are_exported_by_a_command_of_its_own() {
    let files = Files::new();
    let mut program = Running::start(&files, &[], &[]);
    let pid = program.ready();
    program.page();
    let lowtide = |args: &[&str]| -> Command {
        let mut command = plain(common::path());
        command.arg("metrics").args(args);
        command
    };
    let once = text(&lowtide(&["--once"]).output().unwrap().stdout);
    assert!(value(&once, "lowtide_tenant_usage_bytes", pid).is_some(), "{once}");
    assert!(once.ends_with("# EOF\n"));
    let (port, path) = (free_port(), files.path("all.prom"));
    for (args, is_file) in
        [(["--listen", &port.to_string()], false), (["--file", path.as_str()], true)]
    {
        let mut command = lowtide(&args).stderr(Stdio::null()).spawn().unwrap();
        until("figures", || {
            let text = if is_file { fs::read_to_string(&path).ok() } else { scrape(port).ok() };
            value(&text?, "lowtide_tenant_usage_bytes", pid)
        });
        command.kill().unwrap();
        command.wait().unwrap();
    }
    assert_eq!(lowtide(&[]).output().unwrap().status.code(), Some(2), "one of them is needed");
}
