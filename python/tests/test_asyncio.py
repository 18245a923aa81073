"""Ports in asyncio's event loop."""

import asyncio

import netvale
from daemon import LIMIT, WithDaemon, frame, number


class Loop(WithDaemon):
    def run_within(self, work):
        return asyncio.run(asyncio.wait_for(work, LIMIT))

    def test_batches(self):
        """Objective: `async for` returns every frame in order, while the sender waits for room in the same loop, also for frames of several slots."""
        for count, length in ((3000, 60), (300, 9000)):
            self.through_a_pipe(count, length)

    def through_a_pipe(self, count, length):
        with netvale.open("netmap:async{1", slots=64) as a, netvale.open("netmap:async}1") as b:

            async def receive():
                got = []
                async for batch in b:
                    got += [number(view) for view in batch]
                    await asyncio.sleep(0)
                    if len(got) == count:
                        return got

            async def both():
                sending = asyncio.ensure_future(a.asend([frame(k, length) for k in range(count)]))
                got = await receive()
                await sending
                return got

            self.assertEqual(self.run_within(both()), list(range(count)))

    def test_add_reader(self):
        """Objective: an add_reader callback is called for every frame that arrives after the ring was found empty."""
        a, b = self.two_ports()

        async def work():
            loop, got, done = asyncio.get_running_loop(), [], asyncio.Event()

            def ready():
                got.extend(number(view) for view in b.recv())
                if len(got) == 50:
                    done.set()

            loop.add_reader(b, ready)
            for k in range(50):
                a.send([frame(k)])
                await asyncio.sleep(0.001)
            await done.wait()
            loop.remove_reader(b)
            return got

        self.assertEqual(self.run_within(work()), list(range(50)))

    def test_close_ends_the_loop(self):
        """Objective: `async for` ends when the port is closed in the same loop, and is cancelled as other tasks are."""
        _, b = self.two_ports()

        async def work():
            async def receive():
                async for _ in b:
                    pass

            cancelled = asyncio.ensure_future(receive())
            await asyncio.sleep(0.01)
            cancelled.cancel()
            self.assertIsInstance((await asyncio.gather(cancelled, return_exceptions=True))[0], asyncio.CancelledError)
            task = asyncio.ensure_future(receive())
            await asyncio.sleep(0.01)
            b.close()
            await task

        self.run_within(work())

    def test_hang_up(self):
        """Objective: a port that is detached ends the loop with an error."""
        _, b = self.two_ports()
        switch = b.name.split(":")[0]

        async def work():
            async def receive():
                async for _ in b:
                    pass

            task = asyncio.ensure_future(receive())
            await asyncio.sleep(0.01)
            with netvale.Control() as control:
                control.detach(switch, "b")
            await task

        with self.assertRaises(netvale.Closed):
            self.run_within(work())
