//! Browsers and list servers.

use std::net::SocketAddrV4;

use bcnet_transport::{Engine, Time};

use super::Session;
use crate::event::Event;
use crate::master::heartbeat;
use crate::network::any_contains;
use crate::query::{Query, Reply, validate};
use crate::query_limiter::Asker;

impl<E: Engine> Session<E> {
    /// S-05, S-07: a browser or a list server asks what is played here.
    pub(super) fn queried(&mut self, from: SocketAddrV4, text: &[u8], now: Time) {
        self.counters.queries += 1;
        if let Some(master) = self.masters.heard(from, now) {
            self.tell(Event::MasterSeen { master });
        }
        let Some(query) = Query::parse(text) else { return };
        if self.closing {
            return;
        }
        match self.answer(from, &query, now) {
            Some(pieces) => {
                self.counters.queries_answered += 1;
                self.texts.extend(pieces.into_iter().map(|piece| (from, piece)));
            }
            None => self.counters.queries_limited += 1,
        }
    }

    /// S-07: returns the reply, if `from` may have it.
    fn answer(&mut self, from: SocketAddrV4, query: &Query<'_>, now: Time) -> Option<Vec<Vec<u8>>> {
        let who = *from.ip();
        let asker = if any_contains(&self.config.trusted, who) {
            Asker::Trusted
        } else if self.masters.contains(who) {
            Asker::ListServer
        } else {
            Asker::Anyone
        };
        if self.texts.len() >= MAX_TEXTS || !self.query_limiter.ask(asker, who, self.config.query_rate, now) {
            return None;
        }
        let pieces = self.reply(query);
        let bytes = pieces.iter().map(Vec::len).sum();
        self.query_limiter.spend(asker, who, bytes, now).then_some(pieces)
    }

    /// S-06: returns the reply, in the order of the stock game.
    fn reply(&mut self, query: &Query<'_>) -> Vec<Vec<u8>> {
        let mut reply = Reply::new(self.query_number);
        self.query_number = self.query_number.wrapping_add(1).max(1);
        if query.basic {
            reply.pair("gamename", "bcommander").pair("gamever", "60").pair("location", "1");
        }
        if query.info {
            self.write_info(&mut reply);
        }
        if query.rules {
            self.write_rules(&mut reply);
        }
        if query.players {
            let host = self.config.list_host_as_player.then_some("Dedicated Server");
            let names = host.into_iter().chain(self.names());
            let max_name = reply.room_for_each(names.clone().count());
            for (at, name) in names.enumerate() {
                reply.cut_pair(&format!("player_{at}"), name, max_name);
            }
        }
        if let Some(text) = query.echo {
            reply.raw_pair("echo", text);
        }
        if let Some(challenge) = query.secure {
            reply.pair("validate", &validate(challenge));
        }
        reply.finish()
    }

    fn write_info(&self, reply: &mut Reply) {
        let config = &self.config;
        let lock = if config.password.is_some() { "*" } else { "" };
        reply
            .pair("hostname", &format!("{lock}{}", config.name))
            .pair("missionscript", &self.rules.mission.script)
            .pair("mapname", &self.rules.mission.short_name)
            .pair("numplayers", &self.names().count().to_string())
            .pair("maxplayers", &config.places().to_string())
            .pair("gamemode", if self.round.is_over() { "settings" } else { "openplaying" });
    }

    fn write_rules(&self, reply: &mut Reply) {
        let config = &self.config;
        let limit = |limit: Option<u8>, none: i32| limit.map_or(none, i32::from).to_string();
        reply
            .pair("timelimit", &limit(config.minutes(), -1))
            .pair("fraglimit", &limit(config.frag_limit, -2))
            .pair("system", self.round.system.name())
            .pair("password", if config.password.is_some() { "1" } else { "0" });
    }

    /// Returns the names of those who are listed: everyone who has one and a slot.
    fn names(&self) -> impl Iterator<Item = &str> + Clone {
        let listed = self.members.iter().flatten().filter(|member| member.slot.is_some());
        listed.filter_map(|member| member.name.as_deref())
    }

    /// S-09
    pub(super) fn serve_masters(&mut self, now: Time) {
        while let Some(master) = self.masters.lost(now) {
            self.tell(Event::MasterLost { master });
        }
        while self.texts.len() < MAX_TEXTS
            && let Some(master) = self.masters.beat(now)
        {
            self.counters.heartbeats += 1;
            self.texts.push_back((master, heartbeat(self.config.advertise_port)));
        }
    }
}

/// Texts that wait to be sent.
const MAX_TEXTS: usize = 256;
