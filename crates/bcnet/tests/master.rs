//! `bcnet master` as a real process over loopback: heartbeats in, lists out.

mod run;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bcnet_session::challenge_response;

/// Longer than any answer takes.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

struct ListServerProcess {
    child: Child,
    udp: SocketAddr,
    tcp: SocketAddr,
}

impl ListServerProcess {
    fn start() -> Self {
        let mut child = run::in_own_process_group(&mut Command::new(env!("CARGO_BIN_EXE_bcnet")))
            .args(["master", "--bind", "127.0.0.1", "--udp", "0", "--tcp", "0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("bcnet runs");
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut ready).expect("a line");
        let port = |key: &str| {
            let word = ready.split_whitespace().find_map(|word| word.strip_prefix(key)).expect(&ready);
            SocketAddr::from((Ipv4Addr::LOCALHOST, word.parse().expect("a port")))
        };
        Self { udp: port("udp="), tcp: port("tcp="), child }
    }

    /// Requests the list as a game does.
    fn list(&self, form: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.tcp).expect("connected");
        stream.set_read_timeout(Some(READ_TIMEOUT)).expect("a timeout");
        let challenge = read_challenge(&mut stream);
        let answer = challenge_response(challenge.as_bytes());
        let login = format!(
            "\\gamename\\bcommander\\gamever\\1.6\\location\\0\\validate\\{answer}\\final\\\\queryid\\1.1\\"
        );
        stream.write_all(login.as_bytes()).expect("sent");
        stream.write_all(format!("\\list\\{form}\\gamename\\bcommander\\final\\").as_bytes()).expect("sent");
        let mut list = Vec::new();
        stream.read_to_end(&mut list).expect("a list");
        list
    }

    /// Stops the process as an operator does. Returns exit code and log.
    fn stop(mut self) -> (Option<i32>, String) {
        run::signal(self.child.id(), "TERM");
        let mut log = String::new();
        self.child.stderr.take().expect("piped").read_to_string(&mut log).expect("UTF-8");
        (self.child.wait().expect("ended").code(), log)
    }
}

impl Drop for ListServerProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn read_challenge(stream: &mut TcpStream) -> String {
    let mut greeting = [0; 21];
    stream.read_exact(&mut greeting).expect("a challenge");
    let text = String::from_utf8(greeting.to_vec()).expect("ASCII");
    text.strip_prefix("\\basic\\\\secure\\").expect(&text).into()
}

/// A game server with its own socket.
struct FakeGameServer(UdpSocket);

impl FakeGameServer {
    fn new() -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        socket.set_read_timeout(Some(READ_TIMEOUT)).expect("a timeout");
        Self(socket)
    }

    fn port(&self) -> u16 {
        self.0.local_addr().expect("bound").port()
    }

    fn send(&self, to: SocketAddr, text: &str) {
        self.0.send_to(text.as_bytes(), to).expect("sent");
    }

    fn receive(&self) -> String {
        let mut buffer = [0; 512];
        let (len, _) = self.0.recv_from(&mut buffer).expect("something");
        String::from_utf8(buffer[..len].to_vec()).expect("ASCII")
    }

    /// Announces the server and answers everything up to the status query of the list server.
    fn announce(&self, to: SocketAddr) {
        self.send(to, &format!("\\heartbeat\\{}\\gamename\\bcommander", self.port()));
        let question = self.receive();
        let answer = challenge_response(question.strip_prefix("\\secure\\").expect(&question).as_bytes());
        self.send(
            to,
            &format!(
                "\\gamename\\bcommander\\gamever\\60\\location\\0\\validate\\{answer}\\final\\\\queryid\\1.1"
            ),
        );
        assert_eq!(self.receive(), "\\status\\");
        self.send(to, "\\gamename\\bcommander\\hostname\\Test\\numplayers\\0\\final\\\\queryid\\1.1");
    }

    /// Waits until the list server has handled all datagrams that this server has sent.
    ///
    /// It handles datagrams in order, so its answer to a later heartbeat of another server comes after them.
    fn wait_until_processed(to: SocketAddr) {
        let other = Self::new();
        other.send(to, "\\heartbeat\\1\\gamename\\bcommander");
        assert!(other.receive().starts_with("\\secure\\"));
    }
}

#[test]
fn server_that_answers_is_in_both_list_formats() {
    let (master, server) = (ListServerProcess::start(), FakeGameServer::new());
    assert_eq!(master.list("cmp"), b"\\final\\");
    server.announce(master.udp);
    FakeGameServer::wait_until_processed(master.udp);
    let expected = [&[127, 0, 0, 1], &server.port().to_be_bytes()[..], b"\\final\\"].concat();
    assert_eq!(master.list("cmp"), expected);
    assert_eq!(master.list(""), format!("\\ip\\127.0.0.1:{}\\final\\", server.port()).into_bytes());
    let (code, log) = master.stop();
    assert_eq!(code, Some(0));
    assert!(log.contains("listed") && log.contains(&format!("127.0.0.1:{}", server.port())), "{log}");
}

/// The whole chain: our server announces itself, our list server checks it, our query finds it on the list.
#[test]
fn bcnet_serve_is_listed_and_answers_there() {
    let mut master = ListServerProcess::start();
    let directory = std::env::temp_dir().join(format!("bcnet-master-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let masters = format!("server.masters={}", master.udp);
    let mut serve = Command::new(env!("CARGO_BIN_EXE_bcnet"))
        .args(["serve", "--bind", "127.0.0.1", "--name", "Listed", "--set", &masters])
        .args(["--set", "server.control=none", "--set", "session.trusted="])
        .current_dir(&directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("bcnet runs");
    let mut ready = String::new();
    BufReader::new(serve.stdout.take().expect("piped")).read_line(&mut ready).expect("a line");
    let port =
        ready.strip_prefix("server ready port=").and_then(|rest| rest.split(' ').next()).expect(&ready);
    let log = BufReader::new(master.child.stderr.take().expect("piped")).lines();
    let listed = log.map_while(Result::ok).find(|line| line.contains("event=\"listed\""));
    assert!(listed.is_some_and(|line| line.contains(&format!("127.0.0.1:{port}"))));
    let list = String::from_utf8(master.list("")).expect("ASCII");
    let address = list.strip_prefix("\\ip\\").and_then(|list| list.strip_suffix("\\final\\")).expect(&list);
    let query =
        Command::new(env!("CARGO_BIN_EXE_bcnet")).args(["query", address]).output().expect("bcnet runs");
    assert!(String::from_utf8_lossy(&query.stdout).contains("  Listed  "));
    let query = Command::new(env!("CARGO_BIN_EXE_bcnet"))
        .args(["query", "--master", &master.tcp.to_string(), "--timeout", "20s"])
        .output()
        .expect("bcnet runs");
    let table = String::from_utf8_lossy(&query.stdout).into_owned();
    assert!(table.lines().any(|line| line.starts_with(address) && line.ends_with("  Listed")), "{table}");
    serve.kill().expect("killed");
    serve.wait().expect("ended");
    drop(std::fs::remove_dir_all(&directory));
}

#[test]
fn wrong_challenge_answer_is_logged_and_not_listed() {
    let (master, server) = (ListServerProcess::start(), FakeGameServer::new());
    server.send(master.udp, &format!("\\heartbeat\\{}\\gamename\\bcommander", server.port()));
    assert!(server.receive().starts_with("\\secure\\"));
    server.send(master.udp, "\\gamename\\bcommander\\validate\\AAAAAAAA\\final\\");
    server.send(master.udp, "\\gamename\\bcommander\\hostname\\Test\\final\\");
    FakeGameServer::wait_until_processed(master.udp);
    assert_eq!(master.list("cmp"), b"\\final\\");
    let (code, log) = master.stop();
    assert!(code == Some(0) && log.contains("wrong_answer"), "{log}");
}

#[test]
fn client_with_a_wrong_answer_gets_no_list() {
    let (master, server) = (ListServerProcess::start(), FakeGameServer::new());
    server.announce(master.udp);
    FakeGameServer::wait_until_processed(master.udp);
    for login in [
        "\\gamename\\bcommander\\validate\\AAAAAAAA\\final\\\\queryid\\1.1\\\\list\\cmp\\gamename\\bcommander\\final\\",
        "\\list\\cmp\\gamename\\bcommander\\final\\",
        "GET / HTTP/1.1\r\n\\list\\\\final\\",
    ] {
        let mut stream = TcpStream::connect(master.tcp).expect("connected");
        read_challenge(&mut stream);
        stream.write_all(login.as_bytes()).expect("sent");
        let mut list = Vec::new();
        stream.read_to_end(&mut list).expect("the end");
        assert_eq!(list, b"", "{login}");
    }
}

#[test]
fn floods_do_not_change_or_block_the_list() {
    let (master, server) = (ListServerProcess::start(), FakeGameServer::new());
    server.announce(master.udp);
    FakeGameServer::wait_until_processed(master.udp);
    // Silent connections: the list server keeps only a few of them open.
    let idle: Vec<TcpStream> = (0..10).filter_map(|_| TcpStream::connect(master.tcp).ok()).collect();
    let strangers: Vec<FakeGameServer> = (0..50).map(|_| FakeGameServer::new()).collect();
    for round in 0..40 {
        for stranger in &strangers {
            stranger.send(master.udp, &format!("\\heartbeat\\{}\\gamename\\bcommander", 1 + round));
            stranger.send(master.udp, "\\validate\\x\\hostname\\y");
            stranger.send(master.udp, &"\\".repeat(1400));
        }
    }
    let mut huge = TcpStream::connect(master.tcp).expect("connected");
    drop(huge.write_all(&vec![b'\\'; 100_000]));
    let expected = [&[127, 0, 0, 1], &server.port().to_be_bytes()[..], b"\\final\\"].concat();
    assert_eq!(master.list("cmp"), expected);
    drop(idle);
    let (code, log) = master.stop();
    assert_eq!(code, Some(0));
    assert!(log.lines().count() < 200, "{} lines", log.lines().count());
}

/// More silent connections than the list server accepts.
#[test]
fn idle_connections_do_not_block_list_requests() {
    let (master, server) = (ListServerProcess::start(), FakeGameServer::new());
    server.announce(master.udp);
    FakeGameServer::wait_until_processed(master.udp);
    let idle: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(master.tcp).expect("connected")).collect();
    let expected = [&[127, 0, 0, 1], &server.port().to_be_bytes()[..], b"\\final\\"].concat();
    assert_eq!(master.list("cmp"), expected);
    drop(idle);
}

#[test]
fn server_that_disconnects_is_removed_from_the_list() {
    let (master, server) = (ListServerProcess::start(), FakeGameServer::new());
    server.announce(master.udp);
    FakeGameServer::wait_until_processed(master.udp);
    assert_ne!(master.list("cmp"), b"\\final\\");
    server.send(master.udp, &format!("\\heartbeat\\{}\\gamename\\bcommander\\final\\", server.port()));
    assert_eq!(server.receive(), "\\status\\", "the list server verifies the sign-off, which may be forged");
    assert_eq!(master.list("cmp"), b"\\final\\");
}

#[test]
fn port_in_use_prints_one_line() {
    let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let port = taken.local_addr().expect("bound").port().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_bcnet"))
        .args(["master", "--bind", "127.0.0.1", "--udp", &port, "--tcp", "0"])
        .output()
        .expect("bcnet runs");
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{error}");
    let start = format!("bcnet: cannot listen at UDP 127.0.0.1:{port}; choose another --udp or --bind: ");
    assert!(error.starts_with(&start), "{error}");
}
