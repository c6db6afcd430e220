package mirrorlake

import java.lang.{Boolean => JavaBoolean}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{FileAlreadyExistsException, FileSystemException, Files, Paths}
import java.util.{ArrayList, Iterator => JavaIterator, UUID}

import io.delta.storage.HDFSLogStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataOutputStream, Path}
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager

/**
 * The log of tables on a local file system: a commit is there whole or not at all, and never takes
 * the place of another.
 *
 * Delta's own store looks whether a version is there and then renames, so that of two processes
 * that commit one version at the same moment the second overwrites the first. A link is refused by
 * the file system itself. And it starts no process: Hadoop runs `chmod` and `readlink` for what it
 * creates and renames where it has no native library, a dozen of them for a commit, which take
 * longer than all else in it.
 */
class LocalLogStore(hadoop: Configuration) extends HDFSLogStore(hadoop) {

  override def write(
      path: Path,
      actions: JavaIterator[String],
      overwrite: JavaBoolean,
      hadoop: Configuration): Unit = {
    val lines = new ArrayList[String]
    actions.forEachRemaining(line => lines.add(line))
    if (overwrite || !linked(path, lines)) super.write(path, lines.iterator, overwrite, hadoop)
  }

  /** Whether the commit could be linked: not every file system knows links. */
  private def linked(path: Path, lines: ArrayList[String]): Boolean = {
    val target = Paths.get(path.toUri.getPath)
    val staged = target.resolveSibling(s".${target.getFileName}.${UUID.randomUUID}.tmp")
    try {
      Files.write(staged, lines, UTF_8)
      Files.createLink(target, staged)
      true
    } catch {
      case _: FileAlreadyExistsException => throw new FileAlreadyExistsException(path.toString)
      case _: UnsupportedOperationException | _: FileSystemException => false
    } finally Files.deleteIfExists(staged)
  }
}

/** What Delta writes beside a commit, the checksum of a version, without a process either. */
class LocalFiles(path: Path, hadoop: Configuration)
    extends FileSystemBasedCheckpointFileManager(path, hadoop) {

  override def createTempFile(path: Path): FSDataOutputStream =
    if (fs.getScheme == "file") {
      new FSDataOutputStream(Files.newOutputStream(Paths.get(path.toUri.getPath)), null)
    } else super.createTempFile(path)
}
