"""Does a little money bring people to learn their HIV result? A published field experiment.

In Malawi 2,812 people were tested and drew a voucher of up to three dollars, or none, to be paid
when they fetched their result (R. Thornton, American Economic Review 98(5), 2008). People of one
village are alike, so intervals are by village. Regions drew with other shares, which the file does
not say; the shares that were drawn in each stand for them. You will see the published answer beside
ours, and the share of people who fetched their result by what they were promised.
The data and their licence: examples/data/README.md. Needs the extras `analyze` and `plots`.
"""

import argparse
from pathlib import Path

import altair as alt

import steadyarm as sa

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, default=Path("steadyarm-examples"), metavar="DIR")
out = parser.parse_args().out
log = Path(__file__).parent / "data" / "thornton_hiv.csv"

# The file as a log. Nobody says when a person came, so there is one period. Villages are numbered
# by region: 1 to 49, 50 to 99, and from 100 on.
QUERY = """
    WITH people AS (
      SELECT village, learned::int AS reward, {arm} AS arm, least(village::int // 50, 2) AS region
      FROM log)
    SELECT *, count(*) OVER (PARTITION BY region, arm)
      / count(*) OVER (PARTITION BY region) AS probability
    FROM people"""
ANY = "CASE WHEN incentive::double > 0 THEN 'money' ELSE 'none' END"
AMOUNT = """CASE WHEN incentive::double = 0 THEN 'none'
    WHEN incentive::double < 0.5 THEN 'below $0.5' WHEN incentive::double < 1 THEN '$0.5 to 1'
    WHEN incentive::double < 2 THEN '$1 to 2' ELSE '$2 and more' END"""

villages = sa.Columns(cluster="village")
found = sa.analyze(log, query=QUERY.format(arm=ANY), columns=villages)
assert found.units is not None  # clusters are units
share = dict(zip(found.arms.names, found.estimates, strict=True))
plain = dict(zip(found.arms.names, found.means, strict=True))
none = found.arms.names.index("none")
low, high = found.intervals.gap_low[0, none], found.intervals.gap_high[0, none]
print(f"{found.rows:,} people in {found.units.units} villages. {found.summary}")
print("Fetched their result:         published       here")
print(f"  of those without money      0.34            {plain['none']:.2f}")
print(f"  more with any money         0.431           {share['money'] - share['none']:.3f}")
print(f"  its 95 % interval           0.386 to 0.476  {low:.3f} to {high:.3f}")
print(f"  the plain difference        -               {plain['money'] - plain['none']:.3f}")

# Without villages the interval would be too narrow: neighbours go together.
alone = sa.analyze(log, query=QUERY.format(arm=ANY))
ratio = (high - low) / (alone.intervals.gap_high - alone.intervals.gap_low)[0, none]
print(f"By village the interval is {ratio:.2f} times as wide as by person.")

# How much money does it take?
amounts = sa.analyze(log, query=QUERY.format(arm=AMOUNT), columns=villages)
order = [amounts.arms.names.index(name) for name in ("none", "below $0.5", "$0.5 to 1")]
order += [amounts.arms.names.index(name) for name in ("$1 to 2", "$2 and more")]
for k in order:
    print(f"  {amounts.arms.names[k]:<12}{amounts.estimates[k]:.2f}")
print("May be the best:", ", ".join(amounts.plausible))

# The picture.
i = amounts.intervals
rows = [
    {"promised": name, "share": i.estimates[0, k], "low": i.low[0, k], "high": i.high[0, k]}
    for k, name in ((k, amounts.arms.names[k]) for k in order)
]
base = alt.Chart({"values": rows}, width=520, title="Who fetched an HIV result in Malawi")
base = base.encode(x=alt.X("promised:N", sort=None, axis=alt.Axis(labelAngle=0)))
percent = alt.Axis(format="%", title="fetched their result, with intervals by village")
lines = base.mark_rule().encode(y=alt.Y("low:Q", axis=percent), y2="high:Q")
points = base.mark_point(filled=True, size=80).encode(y=alt.Y("share:Q"))

out.mkdir(parents=True, exist_ok=True)
(lines + points).save(out / "07_hiv_results.png", ppi=100)
print(f"Picture: {out / '07_hiv_results.png'}")
