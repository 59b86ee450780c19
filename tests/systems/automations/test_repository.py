"""All URLs of one repository have the same key, and it contains no user or token."""

from __future__ import annotations

import os
from pathlib import Path
from string import ascii_letters, digits
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import InvalidValue
from headway.systems.automations.repository import read_repository
from headway.systems.automations.supervisor.run_log import Log

HERE = Path("/srv/here")
names = st.text(ascii_letters + digits + "-_", min_size=1, max_size=12).filter(
    lambda name: not name.startswith("-")
)
steps = st.lists(names, min_size=1, max_size=4)
hosts = st.lists(
    st.text(ascii_letters + digits, min_size=1, max_size=8), min_size=2, max_size=3
).map(".".join)
# An upper-case marker that cannot occur by chance in a lower-case host or path.
tokens = st.text(ascii_letters + digits + "%:@/?#[] !$", min_size=8, max_size=20).map(
    lambda text: f"TOKEN{text}"
)
SCHEMES = ("https", "http", "ssh", "git", "ftp", "ftps", "git+ssh", "HTTPS", "Ssh")


def key(url: str) -> str:
    return read_repository(url, folder=HERE).key


@st.composite
def written(draw: st.DrawFn, host: str, path: list[str]) -> str:
    """Draw one of the forms in which git accepts the URL of a repository."""
    spelt = draw(st.sampled_from((host, host.upper(), host.lower(), f"{host}.")))
    tail = draw(st.sampled_from(("", "/", ".git", ".git/", "//", ".GIT", "/.git")))
    inner = draw(st.sampled_from(("/", "//", "/./"))).join(path) + tail
    if draw(st.booleans()):
        user = draw(st.sampled_from(("", "git@", "ada@", "ada@corp@")))
        begin = draw(st.sampled_from(("", "/", "~/")))
        inside = draw(st.sampled_from(("", "git@", "ada@corp@")))
        place = draw(st.sampled_from((spelt, f"[{inside}{spelt}]", f"[{inside}{spelt}:2222]")))
        return f"{user}{place}:{begin}{inner}"
    secret = quote(draw(tokens), safe="")
    user = draw(st.sampled_from(("", "git@", f"{secret}@", f"ada:{secret}@", f"{secret}:x@")))
    port = draw(st.sampled_from(("", ":443", ":22", ":8443", ":")))
    query = draw(st.sampled_from(("", f"?token={secret}", f"#{secret}")))
    return f"{draw(st.sampled_from(SCHEMES))}://{user}{spelt}{port}/{inner}{query}"


@given(st.data(), hosts, steps)
def test_all_forms_of_one_repository_have_one_key_without_user_or_token(
    data: st.DataObject, host: str, path: list[str]
) -> None:
    found = read_repository(data.draw(written(host, path)), folder=HERE)
    assert found.key == f"{host}/{'/'.join(path)}".lower()
    assert "TOKEN" not in found.key
    assert "TOKEN" not in repr(found)


@given(st.data(), hosts, steps, steps)
def test_other_paths_have_other_keys(
    data: st.DataObject, host: str, path: list[str], other: list[str]
) -> None:
    one = key(data.draw(written(host, path)))
    two = key(data.draw(written(host, other)))
    same = [step.lower() for step in path] == [step.lower() for step in other]
    assert (one == two) is same


@given(st.data(), hosts, steps)
def test_git_output_about_the_url_is_shown_without_its_token(
    data: st.DataObject, host: str, path: list[str]
) -> None:
    found = read_repository(data.draw(written(host, path)), folder=HERE)
    said = f"fatal: unable to access '{found.url}': {' '.join(found.secrets)} is wrong"
    assert b"TOKEN" not in cleaned(said, *found.secrets)


@given(st.text(max_size=60))
def test_any_text_has_a_key_that_is_a_name_or_is_refused(text: str) -> None:
    try:
        found = key(text)
    except InvalidValue:
        return
    assert found
    assert len(found) < 500
    assert not any(sign in found for sign in "\0\n")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://github.com/User/Repo.git", "github.com/user/repo"),
        ("git@github.com:user/repo", "github.com/user/repo"),
        ("https://x-access-token:abc12345@github.com/user/repo/", "github.com/user/repo"),
        ("ssh://git@[::1]:2222/user/repo.git", "[::1]/user/repo"),
        ("git@[::1]:user/repo", "[::1]/user/repo"),
        ("[git@github.com:22]:user/repo", "github.com/user/repo"),
        ("[git@::1]:user/repo", "[::1]/user/repo"),
        ("https://bücher.example/a/b", "xn--bcher-kva.example/a/b"),
        ("https://github.com/user/a%20b", "github.com/user/a b"),
        ("https://host/a/../b/c", "host/b/c"),
        ("/srv/git/App.git", "/srv/git/App"),
        ("/srv/git/App/.git/", "/srv/git/App"),
        ("file:///srv/git/App.git", "/srv/git/App"),
        ("file://localhost/srv/git//App", "/srv/git/App"),
        ("../git/app", "/srv/git/app"),
        ("./a:b", "/srv/here/a:b"),
    ],
)
def test_keys_of_well_known_forms(url: str, expected: str) -> None:
    assert key(url) == expected


def test_link_to_a_repository_is_that_repository(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert key(str(tmp_path / "link")) == key(str(tmp_path / "real"))


@pytest.mark.parametrize(
    "url",
    ["", " ", "--upload-pack=evil", "ext::sh -c evil", "fd::7", "rsync://host/repo", "https://"],
)
def test_url_that_git_would_not_clone_or_would_run_is_refused_without_repeating_it(
    url: str,
) -> None:
    with pytest.raises(InvalidValue) as refused:
        key(url)
    assert "evil" not in str(refused.value)


def test_token_is_not_shown_as_part_of_an_unknown_url() -> None:
    said = cleaned("remote: see https://ada:s3cret@host/x and ssh://git@host/y")
    assert said == b"remote: see https://***@host/x and ssh://***@host/y"


@pytest.mark.parametrize(
    ("login", "secret"), [("ada:s3", "s3"), ("ada:s%33", "s3"), ("abcd1234", "abcd1234")]
)
def test_password_is_a_secret_however_short_and_so_is_a_token(login: str, secret: str):
    found = read_repository(f"https://{login}@host/a/b", folder=Path("/"))
    assert cleaned(f"fatal: {secret} is wrong", *found.secrets) == b"fatal: *** is wrong"


def test_secret_that_contains_another_is_masked_as_a_whole():
    found = read_repository("https://ada:s3@host/a/b?token=s3cret", folder=Path("/"))
    assert cleaned("fatal: token=s3cret is wrong", *found.secrets) == b"fatal: *** is wrong"


def test_long_paths_that_differ_at_their_ends_have_different_keys_of_a_bounded_length():
    one, two = (key(f"https://host/{'a' * 500}{end}") for end in "xy")
    assert one != two
    assert len(one) == len(two) < 500


def cleaned(text: str, *secrets: str) -> bytes:
    """Return the text as the run log would store it."""
    log = Log(os.devnull, 1_000, list(secrets))
    try:
        return log._clean(text.encode())
    finally:
        os.close(log._file)
