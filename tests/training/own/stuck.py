"""A trainer that waits for an actor which no node can hold."""

import hydra
import ray


@ray.remote(num_gpus=99)
class Large:
    def ready(self):
        pass


@hydra.main(config_path="config", config_name="own", version_base=None)
def main(_config):
    ray.init()
    ray.get(Large.remote().ready.remote())


if __name__ == "__main__":
    main()
