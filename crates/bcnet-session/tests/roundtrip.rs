//! Parsing a written message gives the same message, for every kind of message.

use std::num::NonZeroI32;

use bcnet_lab::Rng;
use bcnet_session::game::*;

/// The data that messages borrow.
struct BorrowedData {
    bytes: Vec<u8>,
    pairs: Vec<[u8; 2]>,
}

impl BorrowedData {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut bytes = vec![0; rng.index(300)];
        rng.fill(&mut bytes);
        let mut pairs = vec![[0; 2]; rng.index(9)];
        rng.fill(pairs.as_flattened_mut());
        Self { bytes, pairs }
    }
}

/// Generates random values, and slices of the borrowed data.
struct MessageGenerator<'a> {
    rng: Rng,
    source: &'a BorrowedData,
}

impl<'a> MessageGenerator<'a> {
    fn u8(&mut self) -> u8 {
        self.rng.next_u64() as u8
    }

    fn u32(&mut self) -> u32 {
        self.rng.next_u64() as u32
    }

    fn i32(&mut self) -> i32 {
        self.rng.next_u64() as i32
    }

    fn float(&mut self) -> f32 {
        (self.rng.fraction() as f32 - 0.5) * 1e4
    }

    fn maybe<T>(&mut self, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.rng.chance(0.5).then(|| draw(self))
    }

    fn bytes(&mut self, most: usize) -> &'a [u8] {
        let bytes = &self.source.bytes;
        let from = self.rng.index(bytes.len() + 1);
        let len = self.rng.index((bytes.len() - from).min(most) + 1);
        &bytes[from..from + len]
    }

    fn text8(&mut self) -> Text8<'a> {
        Text8(self.bytes(255))
    }

    fn text16(&mut self) -> Text16<'a> {
        Text16(self.bytes(300))
    }

    fn id(&mut self) -> ObjectId {
        ObjectId(self.u32())
    }

    fn floats<const N: usize>(&mut self) -> [f32; N] {
        std::array::from_fn(|_| self.float())
    }

    fn packed(&mut self) -> CompressedFloat {
        CompressedFloat(self.u32() as u16)
    }

    fn unit(&mut self) -> UnitVector {
        UnitVector(std::array::from_fn(|_| self.u8().cast_signed()))
    }

    fn vector(&mut self) -> PackedVector {
        PackedVector { direction: self.unit(), length: self.packed() }
    }

    fn scaled(&mut self) -> ScaledVector {
        ScaledVector { direction: self.unit(), share: self.u8() }
    }

    fn object(&mut self) -> Created<'a> {
        let object = self.id();
        if self.rng.chance(0.2) {
            return Created::Other { class: ObjectClass::TORPEDO, object, body: self.bytes(50) };
        }
        let ship = Ship {
            species: Species(self.u8()),
            position: self.floats(),
            rotation: self.floats(),
            unknown: std::array::from_fn(|_| self.u8()),
            name: self.text8(),
            set: self.text8(),
            subsystems: self.bytes(60),
        };
        Created::Ship { object, ship }
    }

    fn event(&mut self) -> GameEvent<'a> {
        let detail = match self.rng.index(11) {
            0 => EventDetail::Plain,
            1 => EventDetail::Subsystem,
            2 => EventDetail::Bool(self.u8()),
            3 => EventDetail::Char(self.u8()),
            4 => EventDetail::Object(self.id()),
            5 => EventDetail::Player(self.u8()),
            6 => {
                let count = self.rng.index(256);
                let contacts = (0..count).map(|_| self.scaled()).collect();
                EventDetail::Collision(Collision { contacts, force: self.float() })
            }
            7 => EventDetail::StartFiring(std::array::from_fn(|_| self.u8())),
            8 => EventDetail::Exploding(Exploding { killer: self.i32(), lifetime: self.float() }),
            9 => EventDetail::Warp(Warp { name: self.text8(), warp: self.floats() }),
            _ => EventDetail::Other { class: EventClass(0x9999), rest: self.bytes(30) },
        };
        GameEvent { event: EventNumber(self.u32()), source: self.id(), related: self.id(), detail }
    }

    fn state(&mut self) -> StateUpdate<'a> {
        let position =
            self.maybe(|draw| Position { place: draw.floats(), hash: draw.maybe(|draw| draw.u32() as u16) });
        let cloaked = self.maybe(|draw| draw.u8() > 127);
        let flags = usize::from(position.is_some()) + usize::from(cloaked.is_some());
        let subsystems = self.maybe(|draw| Subsystems { first: draw.u8(), blocks: draw.bytes(20) });
        let pairs = if subsystems.is_some() { &[][..] } else { &self.source.pairs };
        StateUpdate {
            object: self.id(),
            time: self.float(),
            position,
            delta: self.maybe(Self::vector),
            forward: self.maybe(Self::unit),
            up: self.maybe(Self::unit),
            speed: self.maybe(Self::packed),
            cloaked,
            subsystems,
            power: self.maybe(|_| pairs),
            other_bits: [0, self.u8() & !1, self.u8() & !3][flags],
        }
    }

    fn response(&mut self) -> ChecksumResponse {
        let round = [0, 1, 2, 3, 0xFF][self.rng.index(5)];
        let (mut tree, mut remaining) = (Vec::new(), 1);
        while remaining > 0 {
            let files = self.rng.index(5);
            let files = (0..files).map(|_| FileHash { name: self.u32(), content: self.u32() }).collect();
            let subdirectories = if tree.len() < 20 { self.rng.index(4) } else { 0 };
            let directories: Vec<u32> = (0..subdirectories).map(|_| self.u32()).collect();
            remaining = remaining - 1 + directories.len();
            tree.push(DirectoryHashes { files, directories });
        }
        let version = if round == 0 { Some(self.u32()) } else { None };
        ChecksumResponse { round, version, directory: self.u32(), tree }
    }

    fn change(&mut self) -> ScoreChange {
        let kill = self.maybe(|draw| Kill {
            killer: NonZeroI32::new(draw.i32()).unwrap_or(NonZeroI32::MIN),
            kills: draw.i32(),
            score: draw.i32(),
        });
        let count = self.rng.index(256);
        let players = (0..count).map(|_| PlayerScore { player: self.i32(), score: self.i32() }).collect();
        ScoreChange {
            killer: Killer(kill),
            victim: self.i32(),
            deaths: self.i32(),
            players: PlayerScores(players),
        }
    }

    fn mission(&mut self) -> MissionInit {
        let time = self.maybe(|draw| TimeLimit { minutes: draw.u8() % 255, end_time: draw.i32() });
        MissionInit {
            player_limit: self.u8(),
            system: SystemNumber(self.u8()),
            time_limit: RoundTime(time),
            frag_limit: Limit(Some(self.u8()).filter(|limit| *limit < 255)),
        }
    }

    fn torpedo(&mut self) -> TorpedoFire {
        TorpedoFire {
            weapon: self.id(),
            torpedo: TorpedoType(self.u8()),
            flags: TorpedoFlags(self.u8()),
            direction: self.unit(),
            target: self.maybe(|draw| TorpedoTarget { target: draw.id(), offset: draw.scaled() }),
        }
    }

    fn beam(&mut self) -> BeamFire {
        BeamFire {
            weapon: self.id(),
            unknown_byte: self.u8(),
            direction: self.unit(),
            flags: self.u8(),
            target: self.maybe(Self::id),
        }
    }

    fn settings(&mut self) -> Settings<'a> {
        let (time, flags) = (self.float(), SettingsFlags(self.u8()));
        let (slot, mission) = (self.u8(), self.text16());
        let announced = flags.has(SettingsFlags::CORRECTION);
        let correction_data = if announced { self.bytes(9) } else { &[] };
        Settings { time, flags, slot, mission, correction_data }
    }

    fn request(&mut self) -> ChecksumRequest<'a> {
        let (directory, filter) = (self.text16(), self.text16());
        ChecksumRequest { round: self.u8(), directory, filter, flags: RequestFlags(self.u8()) }
    }

    fn score(&mut self) -> ScoreInit {
        let (peer, kills, deaths, score) = (self.i32(), self.i32(), self.i32(), self.i32());
        ScoreInit { peer, kills, deaths, score, team: self.u8() }
    }

    /// Returns one message of each kind that has a separate layout.
    fn messages(&mut self) -> Vec<Message<'a>> {
        let ScoreInit { peer, kills, deaths, score, team } = self.score();
        vec![
            Message::Settings(self.settings()),
            Message::GameInit(GameInit {}),
            Message::ObjectCreate(ObjectCreate { slot: self.u8(), object: self.object() }),
            Message::ObjectCreateTeam(ObjectCreateTeam {
                slot: self.u8(),
                peer: self.u8(),
                object: self.object(),
            }),
            Message::PythonEvent(self.event()),
            Message::CollisionEffect(self.event()),
            Message::PlayerListEvent(self.event()),
            Message::DestroyObject(DestroyObject { object: self.id() }),
            Message::CollisionSetting(CollisionSetting { flags: CollisionFlags(self.u8()) }),
            Message::DeletePlayerAnimation(DeletePlayerAnimation { name: self.text16() }),
            Message::TorpedoFire(self.torpedo()),
            Message::BeamFire(self.beam()),
            Message::StateUpdate(self.state()),
            Message::EnterSet(EnterSet {
                object: self.id(),
                set: Text32(self.bytes(300)),
                zero: [self.u8()],
            }),
            Message::ChecksumRequest(self.request()),
            Message::ChecksumResponse(self.response()),
            Message::FileTransfer(FileTransfer { file: self.text16(), content: self.bytes(300) }),
            Message::Explosion(Explosion {
                object: self.id(),
                place: self.vector(),
                radius: self.packed(),
                damage: self.packed(),
            }),
            Message::NewPlayerInGame(NewPlayerInGame { flags: UnknownFlags(self.u8()) }),
            Message::Chat(Chat { sender: self.i32(), text: self.text16() }),
            Message::MissionInit(self.mission()),
            Message::ScoreChange(self.change()),
            Message::Score(Score { peer, kills, deaths, score }),
            Message::EndGame(EndGame { reason: EndCode(self.i32()) }),
            Message::ScoreInit(ScoreInit { peer, kills, deaths, score, team }),
            Message::TeamScore(TeamScore { team, kills, score }),
            Message::Team(Team { peer, team }),
            Message::Unknown { opcode: Opcode(0xCD), bytes: self.bytes(300) },
        ]
    }
}

#[test]
fn every_message_roundtrips() {
    for seed in 0..3000 {
        let source = BorrowedData::new(seed);
        let mut draw = MessageGenerator { rng: Rng::new(seed ^ source.bytes.len() as u64), source: &source };
        for message in draw.messages() {
            let mut payload = Vec::new();
            message.write(&mut payload);
            assert_eq!(Message::parse(&payload).as_ref(), Ok(&message), "seed {seed}");
        }
    }
}

#[test]
fn overlong_content_is_truncated() {
    let long = vec![b'x'; 70_000];
    let chat = Message::Chat(Chat { sender: 1, text: Text16(&long) });
    let scores = vec![PlayerScore { player: 2, score: 3 }; 300];
    let change = ScoreChange { killer: Killer(None), victim: 1, deaths: 1, players: PlayerScores(scores) };
    for message in [chat, Message::ScoreChange(change)] {
        let mut payload = Vec::new();
        message.write(&mut payload);
        assert!(Message::parse(&payload).is_ok_and(|read| read != message));
    }
}
