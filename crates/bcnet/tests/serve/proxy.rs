//! `bcnet proxy` between players and a server.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::process::Stdio;

use bcnet_lab::Rng;
use bcnet_session::client::DisconnectReason;
use bcnet_transport::wire::{
    Ack, Body, BootReason, Channel, Control, Datagram, Message, MessageId, PeerId, Role, Seq, Writer,
};
use bcnet_transport::{Config, Connect, Endpoint, Engine, Time};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};

use crate::metrics::promtool;
use crate::player::{LoopbackPlayer, join_two, run_both_until};
use crate::proxy_run::ProxyProcess;
use crate::server::{ServerProcess, TEST_TIMEOUT, TestDirectory, spawn_line_reader};

const SOURCE_POOL: [&str; 2] = ["--upstream-source", "127.1.0.0/16"];

fn chat(alice: &mut LoopbackPlayer, bob: &mut LoopbackPlayer, text: &str) {
    let line = alice.chat_payload(text);
    alice.chat(text);
    run_both_until(alice, bob, |bob| bob.has_received(&line));
}

fn local_address(socket: &UdpSocket) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, socket.local_addr().expect("bound").port())
}

#[test]
fn two_players_chat_through_a_healing_proxy() {
    let server = ServerProcess::start(&["--name", "Behind"]);
    let proxy = ProxyProcess::start(
        server.address(),
        &[&SOURCE_POOL[..], &["--heal", "--metrics", "127.0.0.1:0"]].concat(),
    );
    let [mut alice, mut bob] = join_two(proxy.address, ["Alice", "Bob"]);
    chat(&mut alice, &mut bob, "hello from the other side");
    for (player, source) in [(&alice, "source=127.1.0.1:"), (&bob, "source=127.1.0.2:")] {
        let client = format!("client={}", local_address(&player.socket));
        proxy.wait_for_log(&["event=\"player\"", &client, source]);
    }

    // A query through the proxy gets the answer of the server.
    let query = proxy.directory.bcnet(&["query", &proxy.address.to_string()]).output().expect("runs");
    assert!(String::from_utf8_lossy(&query.stdout).contains("  Behind  "), "{query:?}");

    check_metrics(&proxy);
    #[cfg(unix)]
    {
        check_queues(&proxy, &server.address().to_string());
        proxy.stop();
    }
    assert_eq!((alice.end, bob.end), (None, None));
}

/// Checks the queue dumps of both sides of both conversations, in the format of the stock engine.
#[cfg(unix)]
fn check_queues(proxy: &ProxyProcess, server: &str) {
    proxy.signal("USR1");
    for _ in 0..4 {
        let heading = ProxyProcess::wait_for_line(&proxy.output, &["# ", " to "]);
        assert!(heading.contains(server), "{heading}");
        let dump = ProxyProcess::wait_for_line(&proxy.output, &["peer=", " retxQ=", " ackOutQ="]);
        let (time, _) = dump.strip_prefix('[').and_then(|rest| rest.split_once("] peer=")).expect(&dump);
        assert_eq!(time.bytes().filter(|byte| *byte == b':').count(), 2, "{dump}");
    }
}

fn check_metrics(proxy: &ProxyProcess) {
    let (status, page) = proxy.get("/metrics");
    assert_eq!(status, "HTTP/1.1 200 OK");
    let value = |name: &str| -> u64 {
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} in {page}"))
    };
    assert_eq!(value("bcnet_proxy_players"), 2);
    for side in ["{from=\"clients\"}", "{from=\"server\"}"] {
        assert!(value(&format!("bcnet_proxy_received_datagrams_total{side}")) > 10);
        assert!(value(&format!("bcnet_proxy_received_bytes_total{side}")) > 100);
    }
    assert_eq!(value("bcnet_proxy_refused_datagrams_total{reason=\"banned\"}"), 0);
    value("bcnet_proxy_healed_acks_total{from=\"client\"}");
    assert_eq!((proxy.get("/livez").1.as_str(), proxy.get("/readyz").1.as_str()), ("ok\n", "ok\n"));
    for line in page.lines() {
        let names = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE ")).unwrap_or(line);
        assert!(names.starts_with("bcnet_proxy_") || names.starts_with("process_"), "{line}");
        assert!(line.starts_with('#') || line.rsplit(' ').next().is_some_and(|n| n.parse::<f64>().is_ok()));
    }
    assert_eq!(proxy.get("/").0, "HTTP/1.1 404 Not Found");
    promtool(&["check", "metrics"], &page);
}

#[test]
fn anomalies_are_logged_and_forwarded() {
    let server = ServerProcess::start(&[]);
    let proxy = ProxyProcess::start(server.address(), &["--observe", "--queues", "1"]);
    let mut alice = LoopbackPlayer::join(proxy.address, "Alice");
    send_unreadable_datagram(&proxy, &alice);
    // With `--queues`, dumps are printed at intervals.
    ProxyProcess::wait_for_line(&proxy.output, &["] peer=", " retxQ="]);
    let line = alice.chat_payload("still here");
    alice.chat("still here");
    alice.run_until(|alice| alice.has_received(&line));
}

/// Sends a datagram of unknown type from a player, and waits until the log has the finding.
fn send_unreadable_datagram(proxy: &ProxyProcess, player: &LoopbackPlayer) -> [u8; 5] {
    let wrong = unreadable_datagram(player.client.id());
    player.socket.send_to(&wrong, proxy.address).expect("sent");
    let from = format!("from={}", local_address(&player.socket));
    proxy.wait_for_log(&["event=\"finding\"", "kind=\"unknown_type\"", &from]);
    wrong
}

#[test]
fn anomalies_are_comments_on_their_datagram_in_the_capture() {
    let server = ServerProcess::start(&[]);
    let proxy = ProxyProcess::start(server.address(), &["--observe", "--write", "game.pcapng"]);
    let alice = LoopbackPlayer::join(proxy.address, "Alice");
    let wrong = send_unreadable_datagram(&proxy, &alice);
    let datagrams = captured(&proxy.stop(), "game.pcapng");
    let comments = datagrams.iter().find(|datagram| datagram.bytes == wrong).map(|found| &found.comments);
    assert!(
        comments.is_some_and(|texts| texts.iter().any(|text| text.starts_with("unknown "))),
        "{comments:?}"
    );
}

/// Returns a datagram with the type 0x77, which does not exist.
fn unreadable_datagram(sender: PeerId) -> [u8; 5] {
    let mut wrong = [sender.0, 1, 0x77, 0, 0];
    bcnet_transport::cipher::encrypt(&mut wrong);
    wrong
}

/// A datagram in a capture.
struct CaptureRecord {
    from: u16,
    bytes: Vec<u8>,
    comments: Vec<String>,
}

fn captured(directory: &TestDirectory, name: &str) -> Vec<CaptureRecord> {
    let file = fs::File::open(directory.path(name)).expect("a capture");
    let mut reader = PcapNgReader::new(file).expect("pcapng");
    let mut datagrams = Vec::new();
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block.expect("a whole file") else { continue };
        let comments = packet.options.iter().filter_map(|option| match option {
            EnhancedPacketOption::Comment(text) => Some(text.to_string()),
            _ => None,
        });
        // The UDP header follows an IPv4 header without options.
        let from = u16::from_be_bytes([packet.data[20], packet.data[21]]);
        datagrams.push(CaptureRecord {
            from,
            bytes: packet.data[28..].to_vec(),
            comments: comments.collect(),
        });
    }
    datagrams
}

#[cfg(unix)]
#[test]
fn banned_address_is_refused_until_the_bans_are_reloaded() {
    let server = ServerProcess::start(&[]);
    let directory = TestDirectory::new();
    fs::write(directory.path("bans.toml"), "[[ban]]\naddress = \"127.0.0.0/8\"\n").expect("written");
    let proxy = ProxyProcess::start_in(directory, server.address(), &["--bans", "bans.toml"]);
    let mut alice = LoopbackPlayer::connect(proxy.address, "Alice");
    assert_eq!(alice.run_until_end(), DisconnectReason::Booted(BootReason::BANNED));
    proxy.wait_for_log(&["event=\"refused\"", "reason=\"banned\"", "the address is banned"]);
    // An invalid file changes nothing, and the error has the line.
    fs::write(proxy.directory.path("bans.toml"), "[[ban]]\naddress = \"everyone\"\n").expect("written");
    proxy.signal("HUP");
    proxy.wait_for_log(&["event=\"reload_failed\"", "bans.toml", "line 2"]);
    // A missing file changes nothing either.
    fs::remove_file(proxy.directory.path("bans.toml")).expect("removed");
    proxy.signal("HUP");
    proxy.wait_for_log(&[
        "event=\"reload_failed\"",
        "bans.toml: the bans file does not exist",
        "the proxy keeps the bans",
    ]);
    assert_eq!(
        LoopbackPlayer::connect(proxy.address, "Alice").run_until_end(),
        DisconnectReason::Booted(BootReason::BANNED)
    );
    fs::write(proxy.directory.path("bans.toml"), "").expect("written");
    proxy.signal("HUP");
    proxy.wait_for_log(&["event=\"reloaded\""]);
    LoopbackPlayer::join(proxy.address, "Alice");
}

#[test]
fn second_player_without_a_pool_is_refused_and_logged() {
    let server = ServerProcess::start(&[]);
    let proxy = ProxyProcess::start(server.address(), &["--metrics", "127.0.0.1:0"]);
    let mut alice = LoopbackPlayer::join(proxy.address, "Alice");
    let mut bob = LoopbackPlayer::connect(proxy.address, "Bob");
    assert_eq!(bob.run_until_end(), DisconnectReason::Booted(BootReason::FULL));
    let client = format!("client={}", local_address(&bob.socket));
    proxy.wait_for_log(&["event=\"refused\"", "reason=\"no_source\"", &client, "--upstream-source"]);
    bob.socket.send_to(&unreadable_datagram(PeerId(3)), proxy.address).expect("sent");
    proxy.wait_for_log(&["event=\"refused\"", "reason=\"stranger\"", &client]);
    let line = alice.chat_payload("alone");
    alice.chat("alone");
    alice.run_until(|alice| alice.has_received(&line));
    // The server got nothing of Bob, so the observer has no findings about him.
    let page = proxy.get("/metrics").1;
    assert!(!page.contains("kind=\"unknown_type\""), "{page}");
}

#[test]
fn refused_clients_are_not_captured() {
    let server = ServerProcess::start(&[]);
    let proxy = ProxyProcess::start(server.address(), &["--write", "game.pcapng"]);
    let alice = LoopbackPlayer::join(proxy.address, "Alice");
    let mut bob = LoopbackPlayer::connect(proxy.address, "Bob");
    assert_eq!(bob.run_until_end(), DisconnectReason::Booted(BootReason::FULL));
    let datagrams = captured(&proxy.stop(), "game.pcapng");
    let from = |socket| datagrams.iter().filter(|found| found.from == local_address(socket).port()).count();
    assert!(from(&alice.socket) > 0 && from(&bob.socket) == 0);
}

#[test]
fn restarted_server_is_found_again() {
    let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = local_address(&free).port().to_string();
    drop(free);
    let server = ServerProcess::start(&["--port", &port]);
    let proxy = ProxyProcess::start(server.address(), &[&SOURCE_POOL[..], &["--heal"]].concat());
    let before = join_two(proxy.address, ["Alice", "Bob"]);
    server.signal("KILL");
    drop(server.wait_for_exit());
    // Without a server, datagrams of players are lost, and nothing else happens.
    before[0].socket.send_to(&[1, 2, 3], proxy.address).expect("sent");
    let server = ServerProcess::start(&["--port", &port]);
    let [mut alice, mut bob] = join_two(proxy.address, ["Alice", "Bob"]);
    chat(&mut alice, &mut bob, "back again");
    server.wait_for_log(&["event=\"in_game\"", "player=\"Bob\""]);
    // On Windows a process without a console can only be killed.
    #[cfg(unix)]
    proxy.stop();
}

/// Opens more idle connections than one address may have.
#[test]
fn slow_connections_do_not_delay_the_metrics() {
    let server = ServerProcess::start(&[]);
    let proxy = ProxyProcess::start(server.address(), &["--metrics", "127.0.0.1:0"]);
    let metrics = proxy.metrics.expect("metrics");
    let mut slow: Vec<TcpStream> = (0..60).map(|_| TcpStream::connect(metrics).expect("connected")).collect();
    for stream in &mut slow {
        // The server has already closed some of them.
        drop(stream.write_all(b"GET /metrics HT"));
    }
    assert_eq!(proxy.get("/metrics").0, "HTTP/1.1 200 OK");
    drop(slow);
    // On Windows a process without a console can only be killed.
    #[cfg(unix)]
    proxy.stop();
}

/// Returns an encrypted connect request.
fn connect_request() -> Vec<u8> {
    let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
    let mut endpoint = Endpoint::connect(
        Config { address: Ipv4Addr::LOCALHOST, ..Config::default() },
        Connect { host: to, nonce: 7, password: "" },
        Time::ZERO,
    );
    let mut buffer = [0; 512];
    let transmit = endpoint.poll_transmit(&mut buffer, Time::ZERO).expect("a request");
    buffer[..transmit.len].to_vec()
}

fn receive(socket: &UdpSocket) -> (Vec<u8>, std::net::SocketAddr) {
    let mut buffer = [0; 4096];
    let (len, from) = socket.recv_from(&mut buffer).expect("a datagram");
    (buffer[..len].to_vec(), from)
}

/// Returns an encrypted datagram.
fn encrypted(sender: PeerId, message: &Message<'_>) -> Vec<u8> {
    let mut buffer = [0; 64];
    let mut writer = Writer::new(&mut buffer, sender);
    assert!(writer.push(message));
    let datagram = writer.finish().expect("a message");
    bcnet_transport::cipher::encrypt(datagram);
    datagram.to_vec()
}

/// Lets `server` assign the id 2, as a stock server does. The client acknowledges the cookie of the proxy.
fn verify_client(client: &UdpSocket, server: &UdpSocket, source: std::net::SocketAddr) {
    let reply = Message::Control(Control::new(Seq(0), Body::ConnectReply { assigned: PeerId(2) }));
    server.send_to(&encrypted(PeerId::HOST, &reply), source).expect("sent");
    let (mut offer, _) = receive(client);
    bcnet_transport::cipher::decrypt(&mut offer);
    let datagram = Datagram::parse(&offer, Some(Role::Host)).expect("well formed");
    let number = bcnet_transport::cookie_in(&datagram).expect("a cookie behind the reply");
    let id = MessageId { channel: Channel::Game, seq: number, fragment: None };
    client.send(&encrypted(PeerId(2), &Message::Ack(Ack::new(id)))).expect("sent");
    // The server does not get the ACK: this is the first datagram that it gets.
    let next = encrypted(PeerId(2), &Message::Keepalive);
    client.send(&next).expect("sent");
    assert_eq!(receive(server), (next, source));
}

/// Datagrams of up to 2048 bytes pass both ways unchanged and in order.
#[test]
fn observing_proxy_forwards_every_byte_unchanged() {
    let [client, server] = [0; 2].map(|_| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        socket.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
        socket
    });
    let proxy = ProxyProcess::start(local_address(&server), &["--observe", "--metrics", "127.0.0.1:0"]);
    client.connect(proxy.address).expect("loopback");
    client.send(&connect_request()).expect("sent");
    let (first, source) = receive(&server);
    assert_eq!(first, connect_request());
    let mut rng = Rng::new(6);
    let mut noise = |len: u64| -> Vec<u8> {
        (0..len).map(|_| u8::try_from(rng.between(0, 255)).expect("a byte")).collect()
    };
    let lengths = (0..70).chain([100, 255, 256, 412, 512, 513, 1400, 2047, 2048]);
    let mut sent: Vec<Vec<u8>> = lengths.map(&mut noise).collect();
    sent.remove(0);
    for datagram in &mut sent {
        datagram[0] = 2;
    }
    verify_client(&client, &server, source);
    for burst in sent.chunks(10) {
        for datagram in burst {
            client.send(datagram).expect("sent");
        }
        for datagram in burst {
            assert_eq!(receive(&server), (datagram.clone(), source));
        }
        for datagram in burst {
            server.send_to(datagram, source).expect("sent");
        }
        for datagram in burst {
            assert_eq!(receive(&client).0, *datagram);
        }
    }
    // Longer datagrams are dropped and counted.
    client.send(&[1; 2049]).expect("sent");
    server.send_to(&[1; 2049], source).expect("sent");
    client.send(b"\\status\\").expect("sent");
    let (query, browser) = receive(&server);
    assert!(query == b"\\status\\" && browser != source);
    // Only the server reaches the client.
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    stranger.send_to(&[PeerId::HOST.0, 0], source).expect("sent");
    server.send_to(b"the end", source).expect("sent");
    assert_eq!(receive(&client).0, b"the end");
    // T-80: a datagram under another id is dropped.
    for sender in [1, 3, 0x7E, 0xFF] {
        client.send(&encrypted(PeerId(sender), &Message::Keepalive)).expect("sent");
    }
    client.send(&encrypted(PeerId(2), &Message::Keepalive)).expect("sent");
    assert_eq!(receive(&server).0[0], 2);
    proxy.wait_for_log(&["event=\"refused\"", "reason=\"foreign_id\""]);
    let page = proxy.get("/metrics").1;
    assert!(page.contains("\nbcnet_proxy_oversized_datagrams_total 2\n"), "{page}");
    assert!(page.contains("\nbcnet_proxy_foreign_datagrams_total 0\n"), "{page}");
    assert!(page.contains("\nbcnet_proxy_refused_datagrams_total{reason=\"foreign_id\"} 3\n"), "{page}");
}

/// With `--heal`, malformed datagrams of players pass only with `--pass-malformed`.
#[test]
fn healing_drops_malformed_datagrams_unless_told_otherwise() {
    let server = ServerProcess::start(&[]);
    for (more, expected) in [(None, 1), (Some("--pass-malformed"), 0)] {
        let options: Vec<&str> = ["--heal", "--metrics", "127.0.0.1:0"].into_iter().chain(more).collect();
        let proxy = ProxyProcess::start(server.address(), &options);
        let alice = LoopbackPlayer::join(proxy.address, "Alice");
        send_unreadable_datagram(&proxy, &alice);
        let page = proxy.get("/metrics").1;
        let line = format!("\nbcnet_proxy_refused_datagrams_total{{reason=\"malformed\"}} {expected}\n");
        assert!(page.contains(&line), "{page}");
    }
}

/// Forged requests through the proxy hold no slot of `bcnet serve`: the server asks for the proof itself.
#[test]
fn forged_requests_through_the_proxy_take_no_slot() {
    let server = ServerProcess::start(&[]);
    let proxy = ProxyProcess::start(server.address(), &[&SOURCE_POOL[..], &["--heal"]].concat());
    let silent: Vec<UdpSocket> =
        (0..8).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket")).collect();
    for socket in &silent {
        // An address that does not acknowledge the cookie is like a forged one.
        socket.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
        socket.send_to(&connect_request(), proxy.address).expect("sent");
        let (mut offer, _) = receive(socket);
        bcnet_transport::cipher::decrypt(&mut offer);
        let datagram = Datagram::parse(&offer, Some(Role::Host)).expect("well formed");
        assert!(bcnet_transport::cookie_in(&datagram).is_some(), "{datagram:?}");
        assert_eq!(offer.len(), 17, "the server offers an id and nothing else");
    }
    let status = server.ctl_json(&["players"]).to_string();
    assert!(!status.contains("127.1.0."), "{status}");
    let [mut alice, mut bob] = join_two(proxy.address, ["Alice", "Bob"]);
    chat(&mut alice, &mut bob, "there is room");
}

/// The list server lists the proxy with the port of the proxy, and queries get the answer of the server.
#[test]
fn list_server_lists_the_proxy() {
    let server = ServerProcess::start(&["--name", "Listed"]);
    let directory = TestDirectory::new();
    let mut master = directory
        .bcnet(&["master", "--bind", "127.0.0.1", "--udp", "0", "--tcp", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("bcnet master runs");
    let ready =
        ProxyProcess::wait_for_line(&spawn_line_reader(master.stdout.take().expect("piped")), &["udp="]);
    let udp = ready.split(' ').find_map(|word| word.strip_prefix("udp=")).expect(&ready);
    let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = local_address(&free).port().to_string();
    drop(free);
    let (listen, to) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{udp}"));
    let mut proxy = directory
        .bcnet(&["proxy", "--listen", &listen, "--upstream", &server.address().to_string()])
        .args(["--advertise", &port, "--master", &to])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("bcnet proxy runs");
    let log = spawn_line_reader(master.stderr.take().expect("piped"));
    ProxyProcess::wait_for_line(&log, &["event=\"listed\"", &listen]);
    ProxyProcess::wait_for_line(
        &spawn_line_reader(proxy.stderr.take().expect("piped")),
        &["event=\"master_seen\"", &to],
    );
    for mut child in [proxy, master] {
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
}

#[test]
fn foreign_source_address_is_refused_at_startup() {
    let directory = TestDirectory::new();
    let args = [
        "proxy",
        "--upstream",
        "127.0.0.1:1",
        "--listen",
        "127.0.0.1:0",
        "--upstream-source",
        "192.0.2.0/30",
    ];
    let output = directory.bcnet(&args).output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{error}");
    assert!(error.contains("192.0.2.1 is not an address of this machine"), "{error}");
}

#[test]
fn invalid_proxy_arguments_give_one_line() {
    let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let taken = local_address(&taken).to_string();
    let tcp = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let tcp = tcp.local_addr().expect("bound").to_string();
    let directory = TestDirectory::new();
    fs::write(directory.path("bad.toml"), "[[ban]]\naddress = 7\n").expect("written");
    for (args, part) in [
        (&["--upstream", "127.0.0.1:1", "--listen", &taken][..], "cannot listen at UDP 127.0.0.1:"),
        (&["--upstream", "127.0.0.1:1", "--listen", "[::1]:0"], "the protocol has only IPv4"),
        (
            &["--upstream", "no.such.host.invalid:1", "--listen", "127.0.0.1:0"],
            "no.such.host.invalid: unknown host",
        ),
        (
            &["--upstream", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--metrics", &tcp],
            "--metrics: cannot listen at TCP",
        ),
        (&["--upstream", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--bans", "bad.toml"], "bad.toml"),
        (
            &["--upstream", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--bans", "absent.toml"],
            "absent.toml: the bans file does not exist",
        ),
        (&["--upstream", "127.0.0.1:22101", "--listen", "127.0.0.1:22101"], "the proxy itself listens"),
        (&["--upstream", "127.9.9.9:22101", "--listen", "0.0.0.0:22101"], "the proxy itself listens"),
        (
            &["--upstream", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--write", "bad.toml/game.pcapng"],
            "bad.toml/game.pcapng",
        ),
    ] {
        let output = directory.bcnet(&[&["proxy"], args].concat()).output().expect("runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{args:?}: {error}");
        assert!(error.starts_with("bcnet: ") && error.contains(part), "{args:?}: {error}");
        assert!(output.stdout.is_empty());
    }
    for (args, part) in [
        (&["--upstream", "server"][..], "expected `\"HOST:PORT\"`, not \"server\""),
        (&["--upstream", "server:0"], "port: expected a number from 1 to 65535, not 0"),
        (&["--upstream", "[::1]:22101"], "is IPv6"),
        (&["--upstream", "a:1", "--upstream-source", "127.1.0.1/16"], "did you mean 127.1.0.0/16?"),
        (&["--upstream", "a:1", "--heal", "--observe"], "cannot be used with"),
        (&["--upstream", "a:1", "--advertise", "22101"], "--master"),
        (&["--upstream", "a:1", "--queues", "0"], "--queues"),
    ] {
        let output = directory.bcnet(&[&["proxy"], args].concat()).output().expect("runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(part), "{args:?}: {error}");
    }
}
