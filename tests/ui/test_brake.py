"""The brake on guessing the token."""

from __future__ import annotations

from distlab_dashboard.brake import MOST_GUESSES, Brake


class Clock:
    """A clock that a test sets."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def guess(brake: Brake, address: str, count: int = MOST_GUESSES) -> None:
    for number in range(count):
        brake.note_wrong(address, f"guess {number}")


def test_an_address_waits_until_the_minute_of_its_first_guess_is_over() -> None:
    clock = Clock()
    brake = Brake(clock)
    guess(brake, "192.0.2.7", MOST_GUESSES - 1)
    assert brake.wait_seconds("192.0.2.7") == 0
    clock.now += 20
    guess(brake, "192.0.2.7")
    assert brake.wait_seconds("192.0.2.7") == 40
    assert brake.wait_seconds("192.0.2.8") == 0
    clock.now += 39.5
    assert brake.wait_seconds("192.0.2.7") == 1
    clock.now += 0.5
    assert brake.wait_seconds("192.0.2.7") == 0
    guess(brake, "192.0.2.7", 1)
    assert brake.wait_seconds("192.0.2.7") == 0


def test_the_same_wrong_token_counts_once() -> None:
    brake = Brake(Clock())
    for _ in range(1_000):
        brake.note_wrong("192.0.2.7", "an old one")
    assert brake.wait_seconds("192.0.2.7") == 0


def test_a_network_of_ipv6_is_one_guesser() -> None:
    brake = Brake(Clock())
    for number in range(MOST_GUESSES):
        brake.note_wrong(f"2001:db8::{number + 1:x}", f"guess {number}")
    assert brake.wait_seconds("2001:db8::ffff") == 60
    assert brake.wait_seconds("2001:db8:1::1") == 0


def test_all_loopback_addresses_are_one_guesser() -> None:
    brake = Brake(Clock())
    for number in range(MOST_GUESSES):
        brake.note_wrong(f"127.0.0.{number + 1}", f"guess {number}")
    for own in ("127.0.0.1", "127.8.9.10", "::1"):
        assert brake.wait_seconds(own) == 60
    assert brake.wait_seconds("192.0.2.7") == 0


def test_links_of_other_sites_keep_no_one_out_who_opens_an_address() -> None:
    brake = Brake(Clock())
    for number in range(MOST_GUESSES):
        brake.note_wrong("192.0.2.7", f"guess {number}", by_link=True)
    assert brake.wait_seconds("192.0.2.7", by_link=True) == 60
    assert brake.wait_seconds("192.0.2.7") == 0


def test_many_addresses_take_bounded_memory() -> None:
    brake = Brake(Clock())
    guess(brake, "192.0.2.7")
    for number in range(3_000):
        brake.note_wrong(f"10.0.{number // 256}.{number % 256}", "\ud800")
    assert len(brake._tries) == 1_000
    guess(brake, "192.0.2.7", 10 * MOST_GUESSES)
    assert max(len(tries.wrong) for tries in brake._tries.values()) == MOST_GUESSES
