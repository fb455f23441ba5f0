//! Measures the cost of `bcnet proxy`.
//!
//! The baselines are [`forward`], which only forwards datagrams over the same sockets, and a bare loop of
//! `recvmmsg` and `sendmmsg`.
//!
//! `cargo bench -p bcnet --bench proxy` measures and prints. It exits with 1 if a ratio misses its limit.
//! Each candidate is a separate process on the second processor. The sender and receiver has the first
//! processor and never sleeps. So no candidate depends on scheduling, or pays for waking other processes.
//!
//! The candidates take short turns, and each is compared with its baseline a moment before: the speed of a
//! virtual machine changes by half within seconds. A share is the median over all rounds. Throughput is the
//! number of datagrams that arrive behind the candidate per second of its processor time, while it always has
//! datagrams to handle.
//!
//! If `BCNET_BEFORE` names another build of the program, its `--heal` takes turns as well. The benchmark then
//! prints the ratio of the throughputs of both builds.
#![allow(unsafe_code)]

#[cfg(target_os = "linux")]
mod forward;
#[cfg(target_os = "linux")]
mod raw;

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    linux::main()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{BufRead, BufReader};
    use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
    use std::ops::Range;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, ExitCode, Stdio};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};
    use std::{env, fs, mem, thread};

    use bcnet_transport::cipher;
    use bcnet_transport::wire::{
        Ack, Body, Channel, Control, Data, Datagram, Delivery, Message, MessageId, PeerId, Role, Seq, Text,
        Writer,
    };

    use super::raw::{BURST, Burst, raw_loop, send_all};

    const NAMES: [&str; 5] = ["raw loop", "forwarder", "proxy --observe", "proxy --heal", "before, --heal"];
    /// The index of `proxy --heal`.
    const HEAL_INDEX: usize = 3;
    /// The variable that names another build of the program, whose `--heal` is measured too.
    const BEFORE_VARIABLE: &str = "BCNET_BEFORE";
    const ROUNDS: usize = 50;
    const ROUND_TIME: Duration = Duration::from_millis(150);
    const PINGS: usize = 4000;

    pub(super) fn main() -> ExitCode {
        let args: Vec<String> = env::args().collect();
        if let [_, candidate, upstream] = args.as_slice()
            && let Ok(upstream) = upstream.parse()
        {
            match candidate.as_str() {
                "raw" => raw_loop(upstream),
                _ => super::forward::run(upstream).expect("sockets"),
            }
        }
        pin_to_cpu(0);
        let throughput = throughputs();
        let latency = latencies();
        let mut passed = true;
        println!(
            "{:16} {:>14} {:>12} {:>8} {:>16} {:>8}",
            "", "datagrams/cpu s", "datagrams/s", "share", "added p50 (µs)", "times"
        );
        for (i, name) in NAMES.iter().take(candidate_count()).enumerate() {
            let Throughput { per_cpu, per_second, share } = throughput[i];
            let times = latency[i] / latency[1];
            println!(
                "{name:16} {per_cpu:>14.0} {per_second:>12.0} {share:>8.2} {latency:>16.2} {times:>8.2}",
                latency = latency[i]
            );
            passed &= match i {
                0 => true,
                1 => share >= 0.85,
                2 | HEAL_INDEX => share >= 0.60 && times <= 2.0,
                _ => share > 0.0,
            };
        }
        println!(
            "limits: forwarder 0.85 of the raw loop; proxy 0.60 of the forwarder and at most 2 times its latency: {}",
            if passed { "met" } else { "MISSED" }
        );
        ExitCode::from(u8::from(!passed))
    }

    /// Returns the number of candidates.
    fn candidate_count() -> usize {
        NAMES.len() - usize::from(env::var_os(BEFORE_VARIABLE).is_none())
    }

    /// A process that forwards datagrams.
    struct Candidate {
        child: Child,
        address: SocketAddrV4,
    }

    impl Candidate {
        fn start(number: usize, upstream: SocketAddrV4) -> Self {
            let to = upstream.to_string();
            let bcnet = env!("CARGO_BIN_EXE_bcnet");
            let mut command = match number {
                0 | 1 => Command::new(env::current_exe().expect("a path")),
                2 | HEAL_INDEX => Command::new(bcnet),
                _ => Command::new(env::var_os(BEFORE_VARIABLE).expect("another build")),
            };
            match number {
                0 => command.args(["raw", &to]),
                1 => command.args(["forward", &to]),
                2 => command.args(["proxy", "--listen", "127.0.0.1:0", "--upstream", &to, "--observe"]),
                _ => command.args(["proxy", "--listen", "127.0.0.1:0", "--upstream", &to, "--heal"]),
            };
            // SAFETY: the new process only makes system calls, which are allowed there.
            unsafe {
                command.pre_exec(|| {
                    pin_to_cpu(1);
                    Ok(())
                })
            };
            let mut child =
                command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the candidate starts");
            let mut line = String::new();
            BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
            let port = line.split_once("port=").and_then(|(_, rest)| rest.split_whitespace().next());
            let port = port.and_then(|port| port.parse().ok()).expect(&line);
            Self { child, address: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port) }
        }

        /// Returns the processor time of all threads, in seconds.
        fn cpu_seconds(&self) -> f64 {
            let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("/proc of Linux");
            let times = threads.map(|thread| {
                let path = thread.expect("a thread").path().join("schedstat");
                let text = fs::read_to_string(path).expect("/proc of Linux");
                text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).expect(&text)
            });
            times.sum::<f64>() / 1e9
        }
    }

    /// Pins this process and its children to one processor, if it exists.
    fn pin_to_cpu(processor: usize) {
        // SAFETY: a set of processors consists of integers, and the system reads it during the call.
        unsafe {
            let mut set: libc::cpu_set_t = mem::zeroed();
            libc::CPU_SET(processor, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
        }
    }

    impl Drop for Candidate {
        fn drop(&mut self) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }

    pub(super) fn bind_local() -> UdpSocket {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        socket
    }

    pub(super) fn address(socket: &UdpSocket) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, socket.local_addr().expect("bound").port())
    }

    fn encrypted(sender: PeerId, messages: &[Message<'_>]) -> Vec<u8> {
        let mut buffer = [0; 512];
        let mut writer = Writer::new(&mut buffer, sender);
        assert!(messages.iter().all(|message| writer.push(message)));
        let datagram = writer.finish().expect("messages");
        cipher::encrypt(datagram);
        datagram.to_vec()
    }

    fn data(delivery: Delivery, payload: &[u8]) -> Message<'_> {
        Message::Data(Data { delivery, urgent: false, payload })
    }

    fn connect_request() -> Vec<u8> {
        let body = Body::ConnectRequest { address: Ipv4Addr::LOCALHOST, nonce: 1, password: Text::default() };
        encrypted(PeerId::UNASSIGNED, &[Message::Control(Control::new(Seq(0), body))])
    }

    /// Returns the datagram of a stock server that assigns the id 2.
    fn connect_reply() -> Vec<u8> {
        let body = Body::ConnectReply { assigned: PeerId(2) };
        encrypted(PeerId::HOST, &[Message::Control(Control::new(Seq(0), body))])
    }

    /// Acknowledges the cookie of a proxy behind the reply, if there is one.
    fn acknowledge_cookie(client: &UdpSocket, reply: &mut [u8]) {
        cipher::decrypt(reply);
        let datagram = Datagram::parse(reply, Some(Role::Host)).expect("well formed");
        if let Some(seq) = bcnet_transport::cookie_in(&datagram) {
            let id = MessageId { channel: Channel::Game, seq, fragment: None };
            client.send(&encrypted(PeerId(2), &[Message::Ack(Ack::new(id))])).expect("sent");
        }
    }

    /// Returns the datagrams of a stock client in battle: ACKs, mostly repeated, some reliable messages, and
    /// positions.
    fn battle_traffic() -> Vec<Vec<u8>> {
        let ack = |seq| {
            Message::Ack(Ack::new(MessageId { channel: Channel::Game, seq: Seq(seq % 64), fragment: None }))
        };
        (0..=u16::MAX)
            .map(|i| {
                let mut messages = [0, 1, 2, 3].map(|n| ack(i.wrapping_add(n))).to_vec();
                if i % 4 == 0 {
                    messages.push(data(Delivery::Reliable(Seq(i / 4)), &[0x19; 24]));
                }
                messages.extend([
                    data(Delivery::Unreliable, &[0x1C; 27]),
                    data(Delivery::Unreliable, &[0x1C; 21]),
                ]);
                encrypted(PeerId(2), &messages)
            })
            .collect()
    }

    /// Returns the server's ACKs for the reliable messages of a burst.
    fn server_acks(burst: Range<usize>) -> Vec<u8> {
        let seqs = burst.filter(|i| i % 4 == 0).filter_map(|i| u16::try_from(i / 4).ok());
        let id = |seq| MessageId { channel: Channel::Game, seq: Seq(seq), fragment: None };
        let acks: Vec<_> = seqs.map(|seq| Message::Ack(Ack::new(id(seq)))).collect();
        encrypted(PeerId::HOST, &acks)
    }

    /// A candidate between a client and a server.
    struct MeasuredPath {
        candidate: Candidate,
        client: UdpSocket,
        server: UdpSocket,
        /// The address under which the server sees the client.
        client_seen_at: SocketAddr,
    }

    impl MeasuredPath {
        fn start(number: usize) -> Self {
            let (client, server) = (bind_local(), bind_local());
            let candidate = Candidate::start(number, address(&server));
            client.connect(candidate.address).expect("loopback");
            // The client connects, and the server sends 64 messages that the client acknowledges repeatedly.
            client.send(&connect_request()).expect("sent");
            let mut buffer = [0; 2048];
            let (_, back) = server.recv_from(&mut buffer).expect("the request");
            server.send_to(&connect_reply(), back).expect("sent");
            let len = client.recv(&mut buffer).expect("the reply");
            acknowledge_cookie(&client, &mut buffer[..len]);
            for seq in 0..64 {
                let datagram = encrypted(PeerId::HOST, &[data(Delivery::Reliable(Seq(seq)), &[0x19; 24])]);
                server.send_to(&datagram, back).expect("sent");
                client.recv(&mut buffer).expect("the server's datagram");
            }
            Self { candidate, client, server, client_seen_at: back }
        }

        /// Lets the candidate forward datagrams for one round. Returns how many arrived.
        fn measure_round(&self, battle: &[Vec<u8>], burst: &mut Burst) -> u64 {
            let (mut position, mut in_flight, mut all) = (0, 0, 0);
            let (started, mut heard) = (now(), now());
            while started.elapsed() < ROUND_TIME {
                if in_flight <= MAX_IN_FLIGHT - BURST {
                    let end = (position + BURST).min(battle.len());
                    send_all(&self.client, &battle[position..end]);
                    // The client does not read them: only the candidate must handle them.
                    self.server.send_to(&server_acks(position..end), self.client_seen_at).expect("sent");
                    in_flight += end - position;
                    position = if end == battle.len() { 0 } else { end };
                }
                let arrived = burst.receive(&self.server);
                (in_flight, all) = (in_flight.saturating_sub(arrived), all + arrived as u64);
                if arrived > 0 {
                    heard = now();
                } else if heard.elapsed() > LOST_AFTER {
                    in_flight = 0;
                }
            }
            all
        }
    }

    /// The throughput of a candidate: medians over the rounds.
    struct Throughput {
        /// Datagrams per second of processor time.
        per_cpu: f64,
        /// Datagrams per second.
        per_second: f64,
        /// The share of its baseline's throughput per processor time.
        ///
        /// The baseline is the raw loop for the forwarder, and the forwarder for the proxy.
        share: f64,
    }

    fn throughputs() -> Vec<Throughput> {
        let (battle, mut bytes) = (battle_traffic(), vec![[0; 2048]; BURST]);
        let mut burst = Burst::new();
        burst.set_all_buffers(&mut bytes);
        let lines: Vec<MeasuredPath> = (0..candidate_count()).map(MeasuredPath::start).collect();
        let mut rates = vec![Vec::new(); lines.len()];
        for _ in 0..ROUNDS {
            for (line, rates) in lines.iter().zip(&mut rates) {
                let (started, cpu) = (now(), line.candidate.cpu_seconds());
                let arrived = line.measure_round(&battle, &mut burst) as f64;
                rates.push([
                    arrived / (line.candidate.cpu_seconds() - cpu),
                    arrived / started.elapsed().as_secs_f64(),
                ]);
            }
        }
        let of = |i: usize, n: usize| median(rates[i].iter().map(|rate| rate[n]).collect());
        let against = |i: usize, base: usize| {
            median(rates[i].iter().zip(&rates[base]).map(|(rate, base)| rate[0] / base[0]).collect())
        };
        let share = |i: usize| against(i, i.min(2).saturating_sub(1));
        if lines.len() > HEAL_INDEX + 1 {
            println!("--heal forwards {:.2} times as much as before", against(HEAL_INDEX, HEAL_INDEX + 1));
        }
        let throughput = |i| Throughput { per_cpu: of(i, 0), per_second: of(i, 1), share: share(i) };
        (0..lines.len()).map(throughput).collect()
    }

    /// Returns the median microseconds that each candidate adds to the round trip.
    fn latencies() -> Vec<f64> {
        let echo = bind_local();
        let upstream = address(&echo);
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let echoing = thread::spawn(move || {
            let (mut buffer, reply) = ([0; 2048], connect_reply());
            while !until.load(Ordering::Relaxed) {
                if let Ok((len, from)) = echo.recv_from(&mut buffer) {
                    let is_request = buffer[0] == PeerId::UNASSIGNED.0;
                    drop(echo.send_to(if is_request { &reply } else { &buffer[..len] }, from));
                }
            }
        });
        let candidates: Vec<Candidate> =
            (0..candidate_count()).map(|n| Candidate::start(n, upstream)).collect();
        let targets = [upstream].into_iter().chain(candidates.iter().map(|candidate| candidate.address));
        let clients: Vec<UdpSocket> = targets
            .map(|target| {
                let client = bind_local();
                client.connect(target).expect("loopback");
                client.send(&connect_request()).expect("sent");
                let mut buffer = [0; 512];
                let len = client.recv(&mut buffer).expect("the reply");
                acknowledge_cookie(&client, &mut buffer[..len]);
                client
            })
            .collect();
        let position = data(Delivery::Unreliable, &[0x1C; 27]);
        let positions = encrypted(PeerId(2), &[position; 4]);
        let mut trips = vec![Vec::new(); clients.len()];
        for _ in 0..PINGS {
            for (client, trips) in clients.iter().zip(&mut trips) {
                trips.push(ping(client, &positions));
            }
        }
        stop.store(true, Ordering::Relaxed);
        drop(echoing.join());
        let medians: Vec<f64> = trips.into_iter().map(median).collect();
        medians[1..].iter().map(|through| through - medians[0]).collect()
    }

    /// Returns the microseconds until the answer arrives.
    fn ping(client: &UdpSocket, bytes: &[u8]) -> f64 {
        let started = now();
        client.send(bytes).expect("sent");
        client.recv(&mut [0; 2048]).expect("an answer");
        started.elapsed().as_secs_f64() * 1e6
    }

    #[expect(clippy::disallowed_methods, reason = "a measurement")]
    fn now() -> Instant {
        Instant::now()
    }

    fn median(mut values: Vec<f64>) -> f64 {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }

    /// The maximum number of datagrams in flight. The buffer of a socket is a little larger.
    const MAX_IN_FLIGHT: usize = 192;
    /// A datagram that has not arrived after this time is lost.
    const LOST_AFTER: Duration = Duration::from_millis(20);
}
