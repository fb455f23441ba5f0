//! What `bcnet proxy` costs: side by side with `bcnet forward`, which does nothing but pass datagrams on over the same
//! sockets, and with a bare loop of `recvmmsg` and `sendmmsg`.
//!
//! `cargo bench -p bcnet --bench proxy` measures and prints; a ratio that misses its bar makes it exit with 1. Every
//! candidate is a process of its own. They take turns, so that what else the machine does meets all of them. Throughput is
//! datagrams that arrive behind the candidate for each second of its processor time, which other load disturbs least.
#![allow(unsafe_code)]

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
    use std::os::fd::AsRawFd;
    use std::process::{Child, Command, ExitCode, Stdio};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::{Duration, Instant};
    use std::{env, fs, mem, ptr, thread};

    use bcnet_transport::cipher;
    use bcnet_transport::wire::{
        Ack, Body, Channel, Control, Data, Delivery, Message, MessageId, PeerId, Seq, Text, Writer,
    };

    const NAMES: [&str; 4] = ["raw loop", "forwarder", "proxy --observe", "proxy --heal"];
    const ROUNDS: usize = 7;
    const ROUND: Duration = Duration::from_millis(700);
    const PINGS: usize = 4000;

    pub(super) fn main() -> ExitCode {
        let args: Vec<String> = env::args().collect();
        if let [_, raw, upstream] = args.as_slice()
            && raw == "raw"
        {
            raw_loop(upstream.parse().expect("an address"));
        }
        let throughput = throughputs();
        let latency = latencies();
        let mut passed = true;
        println!(
            "{:16} {:>14} {:>12} {:>8} {:>16} {:>8}",
            "", "datagrams/cpu s", "datagrams/s", "share", "added p50 (µs)", "times"
        );
        for (i, name) in NAMES.iter().enumerate() {
            let [per_cpu, per_second] = throughput[i];
            // The forwarder against the raw loop, the proxy against the forwarder.
            let base = i.min(2).saturating_sub(1);
            let (share, times) = (per_cpu / throughput[base][0], latency[i] / latency[1]);
            println!(
                "{name:16} {per_cpu:>14.0} {per_second:>12.0} {share:>8.2} {latency:>16.2} {times:>8.2}",
                latency = latency[i]
            );
            passed &= match i {
                0 => true,
                1 => share >= 0.85,
                _ => share >= 0.60 && times <= 2.0,
            };
        }
        println!(
            "bars: forwarder 0.85 of the raw loop; proxy 0.60 of the forwarder and at most 2 times its latency: {}",
            if passed { "met" } else { "MISSED" }
        );
        ExitCode::from(u8::from(!passed))
    }

    /// A process that passes datagrams on.
    struct Candidate {
        child: Child,
        address: SocketAddrV4,
    }

    impl Candidate {
        fn start(number: usize, upstream: SocketAddrV4) -> Self {
            let to = upstream.to_string();
            let bcnet = env!("CARGO_BIN_EXE_bcnet");
            let mut command = match number {
                0 => Command::new(env::current_exe().expect("a path")),
                _ => Command::new(bcnet),
            };
            match number {
                0 => command.args(["raw", &to]),
                1 => command.args(["forward", "--listen", "127.0.0.1:0", "--upstream", &to]),
                2 => command.args(["proxy", "--listen", "127.0.0.1:0", "--upstream", &to, "--observe"]),
                _ => command.args(["proxy", "--listen", "127.0.0.1:0", "--upstream", &to, "--heal"]),
            };
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it runs");
            let mut line = String::new();
            BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
            let port = line.split_once("port=").and_then(|(_, rest)| rest.split_whitespace().next());
            let port = port.and_then(|port| port.parse().ok()).expect(&line);
            Self { child, address: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port) }
        }

        /// Processor time, in seconds. All work is done by the first thread.
        fn cpu(&self) -> f64 {
            let path = format!("/proc/{}/schedstat", self.child.id());
            let text = fs::read_to_string(path).expect("Linux tells");
            text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).expect(&text) / 1e9
        }
    }

    impl Drop for Candidate {
        fn drop(&mut self) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }

    fn local() -> UdpSocket {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        socket
    }

    fn address(socket: &UdpSocket) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, socket.local_addr().expect("bound").port())
    }

    fn ciphered(sender: PeerId, messages: &[Message<'_>]) -> Vec<u8> {
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

    fn connect() -> Vec<u8> {
        let body = Body::ConnectRequest { address: Ipv4Addr::LOCALHOST, nonce: 1, password: Text::default() };
        ciphered(PeerId::UNASSIGNED, &[Message::Control(Control::new(Seq(0), body))])
    }

    /// What a stock client sends in battle: ACKs, most of them again, something reliable now and then, positions.
    fn battle() -> Vec<Vec<u8>> {
        let ack = |seq| {
            Message::Ack(Ack::new(MessageId { channel: Channel::Game, seq: Seq(seq % 64), part: None }))
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
                ciphered(PeerId(2), &messages)
            })
            .collect()
    }

    /// The server's ACKs for what is reliable in a burst.
    fn answers(burst: Range<usize>) -> Vec<u8> {
        let seqs = burst.filter(|i| i % 4 == 0).filter_map(|i| u16::try_from(i / 4).ok());
        let id = |seq| MessageId { channel: Channel::Game, seq: Seq(seq), part: None };
        let acks: Vec<_> = seqs.map(|seq| Message::Ack(Ack::new(id(seq)))).collect();
        ciphered(PeerId::HOST, &acks)
    }

    /// A candidate with a client before it and a sink behind it.
    struct Line {
        candidate: Candidate,
        client: UdpSocket,
        arrived: Arc<AtomicU64>,
        /// The server, and where it sees the client.
        server: UdpSocket,
        back: SocketAddr,
    }

    impl Line {
        fn start(number: usize) -> Self {
            let (client, sink) = (local(), local());
            let candidate = Candidate::start(number, address(&sink));
            client.connect(candidate.address).expect("loopback");
            // The client asks to be let in, and the server says 64 things that the client acknowledges ever after.
            client.send(&connect()).expect("sent");
            let mut buffer = [0; 2048];
            let (_, back) = sink.recv_from(&mut buffer).expect("the request");
            for seq in 0..64 {
                let said = ciphered(PeerId::HOST, &[data(Delivery::Reliable(Seq(seq)), &[0x19; 24])]);
                sink.send_to(&said, back).expect("sent");
                client.recv(&mut buffer).expect("what the server said");
            }
            let arrived = Arc::new(AtomicU64::new(0));
            let count = Arc::clone(&arrived);
            let server = sink.try_clone().expect("a copy");
            thread::spawn(move || count_all(&sink, &count));
            Self { candidate, client, arrived, server, back }
        }
    }

    /// Datagrams per second of processor time and per second, each the median of the rounds.
    fn throughputs() -> Vec<[f64; 2]> {
        let battle = battle();
        let lines: Vec<Line> = (0..NAMES.len()).map(Line::start).collect();
        let mut rates = vec![Vec::new(); lines.len()];
        for _ in 0..ROUNDS {
            for (line, rates) in lines.iter().zip(&mut rates) {
                let (before, cpu) = (line.arrived.load(Ordering::Relaxed), line.candidate.cpu());
                let started = now();
                let mut place = 0;
                while started.elapsed() < ROUND {
                    let end = (place + BURST).min(battle.len());
                    send_all(&line.client, &battle[place..end]);
                    // The client reads none of it: only the candidate has to.
                    line.server.send_to(&answers(place..end), line.back).expect("sent");
                    place = if end == battle.len() { 0 } else { end };
                }
                thread::sleep(Duration::from_millis(50));
                let arrived = (line.arrived.load(Ordering::Relaxed) - before) as f64;
                let cpu = line.candidate.cpu() - cpu;
                rates.push([arrived / cpu, arrived / started.elapsed().as_secs_f64()]);
            }
        }
        let of = |rates: &[[f64; 2]], n: usize| median(rates.iter().map(|rate| rate[n]).collect());
        rates.iter().map(|rates| [of(rates, 0), of(rates, 1)]).collect()
    }

    /// How many microseconds each candidate adds to the way there and back, at the median.
    fn latencies() -> Vec<f64> {
        let echo = local();
        let upstream = address(&echo);
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let echoing = thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !until.load(Ordering::Relaxed) {
                if let Ok((len, from)) = echo.recv_from(&mut buffer) {
                    drop(echo.send_to(&buffer[..len], from));
                }
            }
        });
        let candidates: Vec<Candidate> = (0..NAMES.len()).map(|n| Candidate::start(n, upstream)).collect();
        let targets = [upstream].into_iter().chain(candidates.iter().map(|candidate| candidate.address));
        let clients: Vec<UdpSocket> = targets
            .map(|target| {
                let client = local();
                client.connect(target).expect("loopback");
                ping(&client, &connect());
                client
            })
            .collect();
        let position = data(Delivery::Unreliable, &[0x1C; 27]);
        let talk = ciphered(PeerId(2), &[position; 4]);
        let mut trips = vec![Vec::new(); clients.len()];
        for _ in 0..PINGS {
            for (client, trips) in clients.iter().zip(&mut trips) {
                trips.push(ping(client, &talk));
            }
        }
        stop.store(true, Ordering::Relaxed);
        drop(echoing.join());
        let medians: Vec<f64> = trips.into_iter().map(median).collect();
        medians[1..].iter().map(|through| through - medians[0]).collect()
    }

    /// The microseconds until an answer is there.
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

    /// Many datagrams for one system call.
    struct Burst {
        headers: [libc::mmsghdr; BURST],
        parts: [libc::iovec; BURST],
    }

    impl Burst {
        const fn new() -> Self {
            // SAFETY: all zeroes is a valid value of each: integers and null pointers.
            unsafe { mem::zeroed() }
        }

        /// Points one header to its bytes.
        fn point(&mut self, i: usize, bytes: *mut u8, len: usize) {
            self.parts[i] = libc::iovec { iov_base: bytes.cast(), iov_len: len };
            self.headers[i].msg_hdr.msg_iov = &raw mut self.parts[i];
            self.headers[i].msg_hdr.msg_iovlen = 1;
        }

        /// What has arrived at a socket, at least one. How many; their lengths are in the headers.
        fn receive(&mut self, socket: &UdpSocket) -> usize {
            // SAFETY: every header points to one part, and every part to bytes that outlive the call.
            let got = unsafe {
                libc::recvmmsg(
                    socket.as_raw_fd(),
                    self.headers.as_mut_ptr(),
                    BURST as u32,
                    libc::MSG_WAITFORONE as _,
                    ptr::null_mut(),
                )
            };
            usize::try_from(got).unwrap_or(0)
        }

        fn send(&mut self, socket: &UdpSocket, count: usize) {
            // SAFETY: as in `receive`; the bytes are only read.
            unsafe { libc::sendmmsg(socket.as_raw_fd(), self.headers.as_mut_ptr(), count as u32, 0) };
        }
    }

    fn send_all(socket: &UdpSocket, datagrams: &[Vec<u8>]) {
        let mut burst = Burst::new();
        for (i, datagram) in datagrams.iter().enumerate() {
            burst.point(i, datagram.as_ptr().cast_mut(), datagram.len());
        }
        burst.send(socket, datagrams.len());
    }

    fn count_all(socket: &UdpSocket, count: &AtomicU64) {
        let mut room = vec![[0_u8; 2048]; BURST];
        let mut burst = Burst::new();
        for (i, room) in room.iter_mut().enumerate() {
            burst.point(i, room.as_mut_ptr(), room.len());
        }
        loop {
            count.fetch_add(burst.receive(socket) as u64, Ordering::Relaxed);
        }
    }

    /// The yardstick of the yardstick: as little as can be done with two sockets. Each way has a thread, so that no time
    /// is spent on waiting for two things.
    fn raw_loop(upstream: SocketAddrV4) -> ! {
        let (client_side, server_side) = (local(), local());
        for socket in [&client_side, &server_side] {
            socket.set_read_timeout(None).expect("no timeout");
        }
        server_side.connect(upstream).expect("loopback");
        println!("raw ready port={}", address(&client_side).port());
        let mut first = [0; 2048];
        let (len, client) = client_side.recv_from(&mut first).expect("a datagram");
        client_side.connect(client).expect("loopback");
        server_side.send(&first[..len]).expect("sent");
        let (up, down) = ([client_side.try_clone(), server_side.try_clone()], [server_side, client_side]);
        thread::spawn(move || pump(&down[0], &down[1]));
        let [from, to] = up.map(|socket| socket.expect("a copy"));
        pump(&from, &to)
    }

    fn pump(from: &UdpSocket, to: &UdpSocket) -> ! {
        let mut room = vec![[0_u8; 2048]; BURST];
        let mut burst = Burst::new();
        loop {
            for (i, room) in room.iter_mut().enumerate() {
                burst.point(i, room.as_mut_ptr(), room.len());
            }
            let got = burst.receive(from);
            for i in 0..got {
                burst.parts[i].iov_len = burst.headers[i].msg_len as usize;
            }
            burst.send(to, got);
        }
    }

    /// Datagrams per system call.
    const BURST: usize = 64;
}
