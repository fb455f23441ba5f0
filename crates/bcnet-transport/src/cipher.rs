//! The datagram cipher.
