"""The JavaScript package: its own tests in Node, and what `npm pack` puts into it."""

from __future__ import annotations

import fcntl
import json
import tarfile
from pathlib import Path

import pytest

import steadyarm
from tests.e2e.sdk.shops import ROOT, SDK, Shop, build, node_tests, run

TESTS = sorted(path.name.removesuffix(".ts") for path in SDK.glob("test/*.test.ts"))
MODULES = ("events", "server", "service", "web")
CONSUMER = """
import { OpenFeature as Server } from "@openfeature/server-sdk";
import { OpenFeature as Web } from "@openfeature/web-sdk";
import { SteadyArmProvider, type SteadyArmOptions } from "@steadyarm/openfeature/server";
import { SteadyArmWebProvider, visitorId, type EventCounts } from "@steadyarm/openfeature/web";

const options: SteadyArmOptions = { url: "http://localhost:8000", token: "sa_", buffer: "events" };
const server = new SteadyArmProvider(options);
void Server.setProviderAndWait(server);
const web = new SteadyArmWebProvider({ url: "http://localhost:8000", key: "pk_", flags: ["shop"] });
void Web.setProviderAndWait(web, { targetingKey: visitorId() });
const counts: EventCounts = web.counts;
const unit = { targetingKey: "visitor 1" };
const value: Promise<string> = Server.getClient().getStringValue("shop", "A", unit);
export { counts, value };
// @ts-expect-error: an address is needed
new SteadyArmProvider({});
// @ts-expect-error: times are numbers
new SteadyArmWebProvider({ url: "", timeout: "2s" });
"""


@pytest.mark.parametrize("file", TESTS)
def test_its_own_tests_pass_in_node(file: str) -> None:
    assert node_tests(f"{file}.js") >= 15


def test_the_provider_for_servers_works_with_a_real_service(shop: Shop) -> None:
    assigned, rewarded = shop.counts()
    env = {"STEADYARM_URL": shop.url, "STEADYARM_TOKEN": shop.token}
    assert node_tests("steadyarm.live.js", env) == 3
    assert shop.counts() == (assigned + 60, rewarded + 60)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that has installed the package as npm would publish it."""
    program = tmp_path_factory.mktemp("program")
    build()
    with (SDK / "build/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = run("npm", "pack", "--json", "--pack-destination", str(program))
    (name,) = [one["filename"] for one in json.loads(said[said.index("[") :])]
    home = program / "node_modules/@steadyarm/openfeature"
    with tarfile.open(program / name) as archive:
        archive.extractall(program, filter="data")
    home.parent.mkdir(parents=True)
    (program / "package").rename(home)
    (program / "node_modules/@openfeature").symlink_to(SDK / "node_modules/@openfeature")
    (program / "node_modules/@types").symlink_to(SDK / "node_modules/@types")
    return program


def test_the_package_has_code_types_and_sources_and_nothing_else(unpacked: Path) -> None:
    home = unpacked / "node_modules/@steadyarm/openfeature"
    found = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
    ends = ("js", "js.map", "d.ts", "d.ts.map")
    expected = {f"dist/{name}.{end}" for name in MODULES for end in ends}
    expected |= {f"src/{name}.ts" for name in MODULES} | {"src/tsconfig.json"}
    assert found == expected | {"package.json", "README.md", "LICENSE"}
    assert (home / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    described = json.loads((home / "package.json").read_text())
    assert described["version"] == steadyarm.__version__
    assert described["engines"] == {"node": ">=18"}
    assert "dependencies" not in described
    optional = {
        name for name, meta in described["peerDependenciesMeta"].items() if meta["optional"]
    }
    assert optional == described["peerDependencies"].keys()


def test_its_types_are_complete(unpacked: Path) -> None:
    """A program in TypeScript compiles with it, and with none of its checks switched off."""
    (unpacked / "program.mts").write_text(CONSUMER)
    settings = {"strict": True, "module": "NodeNext", "target": "ES2022", "noEmit": True}
    settings |= {"types": ["node"], "lib": ["ES2022", "DOM"], "skipLibCheck": False}
    described = {"compilerOptions": settings, "files": ["program.mts"]}
    (unpacked / "tsconfig.json").write_text(json.dumps(described))
    run("node", str(SDK / "node_modules/typescript/bin/tsc"), "--project", ".", cwd=unpacked)
