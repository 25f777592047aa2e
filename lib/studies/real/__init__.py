"""The real sample: a capable writer's texts, judged evidence, and what contrast does there."""
