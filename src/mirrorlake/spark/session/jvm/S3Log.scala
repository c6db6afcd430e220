package mirrorlake

import java.io.IOException
import java.lang.{Boolean => JavaBoolean}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.FileAlreadyExistsException
import java.util.{Iterator => JavaIterator}

import io.delta.storage.S3SingleDriverLogStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileAlreadyExistsException => FileIsThere, Path}

/**
 * The log of tables on S3: a commit never takes the place of another, whichever process writes it.
 *
 * Delta's own store looks whether a version is there and then puts it, so that of two processes
 * that commit one version at the same moment the second overwrites the first. Here the storage
 * itself refuses it, by `If-None-Match`. A commit whose answer was lost, and that is sent again, is
 * refused by itself: its number is in the table then, and who reads it back finds that.
 */
class S3LogStore(hadoop: Configuration) extends S3SingleDriverLogStore(hadoop) {

  override def write(
      path: Path,
      actions: JavaIterator[String],
      overwrite: JavaBoolean,
      hadoop: Configuration): Unit =
    if (overwrite) super.write(path, actions, overwrite, hadoop) else create(path, actions, hadoop)

  private def create(path: Path, actions: JavaIterator[String], hadoop: Configuration): Unit = {
    val lines = new StringBuilder
    actions.forEachRemaining(line => lines.append(line).append('\n'))
    try {
      val file = path.getFileSystem(hadoop).createFile(path).overwrite(false)
        .must("fs.option.create.conditional.overwrite", true).build()
      file.write(lines.toString.getBytes(UTF_8)) // what fails before the end is not put
      file.close()
    } catch {
      case error: IOException if isRefused(error) =>
        throw new FileAlreadyExistsException(path.toString)
    }
  }

  private def isRefused(error: IOException): Boolean =
    error.isInstanceOf[FileIsThere] ||
      error.getClass.getSimpleName == "RemoteFileChangedException" // of S3A, for the answer 412
}
